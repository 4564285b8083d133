// Command sampler runs on a node and records on which CPUs the program of each container may run.
//
// It reads the node every 50 ms: the containers that the runtime has created, their cgroups, the CPU affinity of their
// threads, and the CDI files of claims. It writes a line of JSON for each change to its standard output, until SIGTERM.
//
// Reading many files takes time, and the node may change between two reads. Therefore a state counts as observed only
// when two successive readings of everything are equal: then all of it was true at once from the end of the first to
// the start of the second. After a change, the sampler reads again without a pause until two readings are equal.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	filePrefix = "dra.k8s.io-cpu_" // of the names of the driver's CDI files
	envPrefix  = "DRA_CPUSET_"     // of the environment variables that tell a container its CPUs
	maxCPUs    = 8192
)

var (
	interval = flag.Duration("interval", 50*time.Millisecond, "time between two readings")
	bundles  = flag.String("bundles", "/run/containerd/io.containerd.runtime.v2.task/k8s.io", "the runtime's containers")
	cgroups  = flag.String("cgroups", "/sys/fs/cgroup", "where the cgroup file system is mounted")
	cdi      = flag.String("cdi", "/var/run/cdi", "the folder of the CDI files")
)

// A container as its OCI spec describes it; this does not change.
type container struct {
	ID        string   `json:"id"`
	Kind      string   `json:"kind"` // "container", or "sandbox": the pause process, which the kubelet pins nowhere
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Name      string   `json:"name"`
	Env       []string `json:"env"` // only the variables of the driver

	folder   string // of its cgroup
	files    []*os.File
	programs map[int]bool // threads that were seen to run the container's program
}

// The CPUs of a container at the time of one reading.
type state struct {
	Cpus      string `json:"cpus"`      // cpuset.cpus
	Effective string `json:"effective"` // cpuset.cpus.effective
	Allowed   string `json:"allowed"`   // the CPUs that at least one thread of its program may use
	Running   bool   `json:"running"`   // its program has a thread
	Preparing bool   `json:"preparing"` // runc has a process in its cgroup, which has not started the program yet
}

// A CDI file, whose env lines are read again only when the file has been replaced.
type cdiFile struct {
	info os.FileInfo
	env  string
}

// The result of one reading: a state for each container, and the env lines for each claim.
type reading struct {
	states map[string]state
	claims map[string]string
}

func (r reading) equals(other reading) bool {
	return maps.Equal(r.states, other.states) && maps.Equal(r.claims, other.claims)
}

type sampler struct {
	known  map[string]*container
	claims map[string]cdiFile
	out    *json.Encoder
}

func main() {
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	// the node is busy; with the default priority, many readings would be late
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, -20); err != nil {
		fmt.Fprintln(os.Stderr, "sampler: cannot raise its priority:", err)
	}
	s := sampler{known: map[string]*container{}, claims: map[string]cdiFile{}, out: json.NewEncoder(os.Stdout)}
	s.run(stop)
}

func (s *sampler) run(stop <-chan os.Signal) {
	ticker := time.NewTicker(*interval)
	started := time.Now()
	first, finished := s.read(), time.Now()
	var reported reading
	readings, slowest, summary := 0, time.Duration(0), started
	for {
		restarted := time.Now()
		second := s.read()
		readings, slowest = readings+1, max(slowest, restarted.Sub(started))
		started = restarted
		equal := first.equals(second)
		if equal && !second.equals(reported) {
			s.report(finished, reported, second)
			reported = second
		}
		first, finished = second, time.Now()
		if finished.Sub(summary) >= time.Second {
			s.write(finished, map[string]any{"readings": readings, "slowest": slowest.Seconds()})
			readings, slowest, summary = 0, 0, finished
		}
		if equal {
			select {
			case <-stop:
				s.write(finished, map[string]any{"readings": readings, "slowest": slowest.Seconds(), "end": true})
				return
			case <-ticker.C:
			}
		}
	}
}

// ---- writing

func (s *sampler) report(at time.Time, before, now reading) {
	for uid, env := range now.claims {
		if former, had := before.claims[uid]; !had || former != env {
			s.write(at, map[string]any{"claim": uid, "env": strings.Fields(env)})
		}
	}
	for uid := range before.claims {
		if _, has := now.claims[uid]; !has {
			s.write(at, map[string]any{"released": uid})
		}
	}
	for id, current := range now.states {
		former, had := before.states[id]
		if !had {
			s.write(at, map[string]any{"found": s.known[id]})
		}
		if !had || former != current {
			s.write(at, map[string]any{"container": id, "state": current})
		}
	}
	for id := range before.states {
		if _, has := now.states[id]; !has {
			s.write(at, map[string]any{"gone": id})
		}
	}
}

func (s *sampler) write(at time.Time, line map[string]any) {
	line["at"] = float64(at.UnixMicro()) / 1e6
	if err := s.out.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, "sampler: cannot write:", err)
		os.Exit(1)
	}
}

// ---- reading

func (s *sampler) read() reading {
	found := reading{states: map[string]state{}, claims: s.readClaims()}
	present := map[string]bool{}
	for _, id := range names(*bundles) {
		present[id] = true
		if s.known[id] == nil {
			made := load(id)
			if made == nil {
				continue // the runtime has not finished writing it
			}
			s.known[id] = made
		}
		found.states[id] = s.known[id].read()
	}
	for id, gone := range s.known {
		if !present[id] {
			gone.close()
			delete(s.known, id)
		}
	}
	return found
}

func (s *sampler) readClaims() map[string]string {
	found := map[string]string{}
	for _, name := range names(*cdi) {
		uid, ours := strings.CutPrefix(strings.TrimSuffix(name, ".json"), filePrefix)
		path := filepath.Join(*cdi, name)
		info, err := os.Stat(path)
		if !ours || err != nil {
			continue
		}
		if known, ok := s.claims[uid]; !ok || !os.SameFile(known.info, info) || !known.info.ModTime().Equal(info.ModTime()) {
			env, err := readEnv(path)
			if err != nil {
				continue // it was deleted meanwhile
			}
			s.claims[uid] = cdiFile{info, env}
		}
		found[uid] = s.claims[uid].env
	}
	return found
}

func readEnv(path string) (string, error) {
	var spec struct {
		Devices []struct {
			ContainerEdits struct{ Env []string }
		}
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	var env []string
	for _, device := range spec.Devices {
		env = append(env, device.ContainerEdits.Env...)
	}
	return strings.Join(env, " "), err
}

// load returns a container from its OCI spec, or nil while the runtime writes the spec.
func load(id string) *container {
	var spec struct {
		Process     struct{ Env []string }
		Annotations map[string]string
		Linux       struct{ CgroupsPath string }
	}
	data, err := os.ReadFile(filepath.Join(*bundles, id, "config.json"))
	if err != nil || json.Unmarshal(data, &spec) != nil {
		return nil
	}
	about := func(name string) string { return spec.Annotations["io.kubernetes.cri."+name] }
	made := &container{
		ID:        id,
		Kind:      about("container-type"),
		Namespace: about("sandbox-namespace"),
		Pod:       about("sandbox-name"),
		Name:      about("container-name"),
		Env:       []string{},
		folder:    cgroupFolder(spec.Linux.CgroupsPath),
		programs:  map[int]bool{},
	}
	for _, variable := range spec.Process.Env {
		if strings.HasPrefix(variable, envPrefix) {
			made.Env = append(made.Env, variable)
		}
	}
	return made
}

// cgroupFolder returns the folder of a cgroup. The path in an OCI spec is a path for the cgroupfs driver, and
// slice:prefix:name for the systemd driver; a slice a-b.slice is in the folder of a.slice.
func cgroupFolder(path string) string {
	words := strings.Split(path, ":")
	if len(words) != 3 {
		return filepath.Join(*cgroups, path)
	}
	folder, name := *cgroups, ""
	for _, part := range strings.Split(strings.TrimSuffix(words[0], ".slice"), "-") {
		name += part
		folder = filepath.Join(folder, name+".slice")
		name += "-"
	}
	return filepath.Join(folder, words[1]+"-"+words[2]+".scope")
}

func (c *container) read() state {
	if c.files == nil {
		for _, name := range []string{"cpuset.cpus", "cpuset.cpus.effective", "cgroup.threads"} {
			file, err := os.Open(filepath.Join(c.folder, name))
			if err != nil {
				c.close()
				return state{} // the cgroup does not exist, not yet or not any more
			}
			c.files = append(c.files, file)
		}
	}
	found := state{Cpus: text(c.files[0]), Effective: text(c.files[1])}
	var allowed [maxCPUs / 8]byte
	programs := map[int]bool{}
	for _, word := range strings.Fields(text(c.files[2])) {
		thread, _ := strconv.Atoi(word)
		if !c.programs[thread] {
			executable, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", thread))
			if err != nil {
				continue // the thread has ended
			}
			if isRunc(executable) {
				found.Preparing = true
				continue
			}
		}
		if addAffinity(thread, &allowed) {
			programs[thread] = true
		}
	}
	c.programs = programs
	found.Running, found.Allowed = len(programs) > 0, list(allowed[:])
	return found
}

// isRunc returns whether a program is runc, which protects itself by running from a copy in memory or an overlay.
func isRunc(executable string) bool {
	return filepath.Base(executable) == "runc" || strings.HasPrefix(executable, "/memfd:runc_cloned:")
}

func (c *container) close() {
	for _, file := range c.files {
		file.Close()
	}
	c.files = nil
}

// addAffinity adds the CPUs that a thread may use; it returns false when the thread has ended.
func addAffinity(thread int, all *[maxCPUs / 8]byte) bool {
	var mask [maxCPUs / 8]byte
	size, _, failed := syscall.RawSyscall(
		syscall.SYS_SCHED_GETAFFINITY, uintptr(thread), unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)),
	)
	if failed != 0 {
		return false
	}
	for i := range int(size) {
		all[i] |= mask[i]
	}
	return true
}

// list returns the numbers of the CPUs in a mask, separated by commas.
func list(mask []byte) string {
	var cpus []string
	for i, bits := range mask {
		for bit := 0; bits>>bit != 0; bit++ {
			if bits>>bit&1 != 0 {
				cpus = append(cpus, strconv.Itoa(8*i+bit))
			}
		}
	}
	return strings.Join(cpus, ",")
}

// text returns the content of a file, read from its start; "" when its cgroup has been removed.
func text(file *os.File) string {
	var buffer [16384]byte
	size, _ := file.ReadAt(buffer[:], 0)
	return strings.TrimSpace(string(buffer[:size]))
}

// names returns the names in a folder; none when it does not exist.
func names(folder string) []string {
	opened, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer opened.Close()
	found, _ := opened.Readdirnames(-1)
	return found
}
