// Command sampler runs on a node and records on which CPUs the program of each container may run, and which memory and
// hugepages it may use.
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

const maxCPUs = 8192

// A driver of this project: its name in the log, and the beginnings of the names of its CDI files and of the environment
// variables that it gives containers.
var drivers = []struct{ name, file, env string }{
	{"cpu", "dra.k8s.io-cpu_", "DRA_CPUSET_"},
	{"memory", "dra.k8s.io-memory_", "DRAMEMORY_"},
}

// The files about memory in the cgroup of a container, and in that of its pod; not all kernels have all of them.
var (
	memoryFiles = [5]string{
		"cpuset.mems", "memory.max", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "hugetlb.2MB.numa_stat",
	}
	podFiles = [2]string{"hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"}
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
	Env       []string `json:"env"` // only the variables of the drivers

	folder   string // of its cgroup
	files    []*os.File
	memory   []*os.File   // memoryFiles and podFiles; nil in place of one that does not exist
	programs map[int]bool // threads that were seen to run the container's program
}

// The CPUs of a container at the time of one reading.
type state struct {
	Cpus      string `json:"cpus"`      // cpuset.cpus
	Effective string `json:"effective"` // cpuset.cpus.effective
	Allowed   string `json:"allowed"`   // the CPUs that at least one thread of its program may use
	Running   bool   `json:"running"`   // its program has a thread
	Preparing bool   `json:"preparing"` // runc has a process in its cgroup, which has not started the program yet
	// the contents of memoryFiles and podFiles
	Memory [len(memoryFiles) + len(podFiles)]string `json:"memory"`
}

// Names the claim of a CDI file.
type claimKey struct{ driver, uid string }

// A CDI file, whose env lines are read again only when the file has been replaced.
type cdiFile struct {
	info os.FileInfo
	env  string
}

// The result of one reading: a state for each container, and the env lines for each claim.
type reading struct {
	states map[string]state
	claims map[claimKey]string
}

func (r reading) equals(other reading) bool {
	return maps.Equal(r.states, other.states) && maps.Equal(r.claims, other.claims)
}

type sampler struct {
	known  map[string]*container
	claims map[claimKey]cdiFile
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
	s := sampler{known: map[string]*container{}, claims: map[claimKey]cdiFile{}, out: json.NewEncoder(os.Stdout)}
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
	for key, env := range now.claims {
		if former, had := before.claims[key]; !had || former != env {
			s.write(at, map[string]any{"claim": key.uid, "driver": key.driver, "env": strings.Fields(env)})
		}
	}
	for key := range before.claims {
		if _, has := now.claims[key]; !has {
			s.write(at, map[string]any{"released": key.uid, "driver": key.driver})
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

func (s *sampler) readClaims() map[claimKey]string {
	found := map[claimKey]string{}
	for _, name := range names(*cdi) {
		key, ours := claimOf(name)
		path := filepath.Join(*cdi, name)
		info, err := os.Stat(path)
		if !ours || err != nil {
			continue
		}
		if known, ok := s.claims[key]; !ok || !os.SameFile(known.info, info) || !known.info.ModTime().Equal(info.ModTime()) {
			env, err := readEnv(path)
			if err != nil {
				continue // it was deleted meanwhile
			}
			s.claims[key] = cdiFile{info, env}
		}
		found[key] = s.claims[key].env
	}
	return found
}

// claimOf returns whose claim a CDI file is of; false when it is none of these drivers'.
func claimOf(file string) (claimKey, bool) {
	for _, driver := range drivers {
		if uid, ours := strings.CutPrefix(strings.TrimSuffix(file, ".json"), driver.file); ours {
			return claimKey{driver.name, uid}, true
		}
	}
	return claimKey{}, false
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
		for _, driver := range drivers {
			if strings.HasPrefix(variable, driver.env) {
				made.Env = append(made.Env, variable)
			}
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
		c.openMemory()
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
	for i, file := range c.memory {
		if file != nil {
			found.Memory[i] = text(file)
		}
	}
	return found
}

// openMemory opens the files about memory. The kernel creates all files of a cgroup together with it.
func (c *container) openMemory() {
	if c.Kind != "container" {
		return
	}
	pod := filepath.Dir(c.folder)
	for _, name := range memoryFiles {
		file, _ := os.Open(filepath.Join(c.folder, name))
		c.memory = append(c.memory, file)
	}
	for _, name := range podFiles {
		file, _ := os.Open(filepath.Join(pod, name))
		c.memory = append(c.memory, file)
	}
}

// isRunc returns whether a program is runc, which protects itself by running from a copy in memory or an overlay.
func isRunc(executable string) bool {
	return filepath.Base(executable) == "runc" || strings.HasPrefix(executable, "/memfd:runc_cloned:")
}

func (c *container) close() {
	for _, file := range c.files {
		file.Close()
	}
	for _, file := range c.memory {
		file.Close() // of nil, it does nothing
	}
	c.files, c.memory = nil, nil
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
