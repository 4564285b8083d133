// Calls the CPU manager of the kubelet. tools/record_vectors.py compiles this file together with the kubelet's own
// cpu_assignment.go, which it takes from the Go module of Kubernetes.
//
// Standard input: the machines of tests/vectors/topologies.json on the first line, then a question on each line.
// Standard output: an answer for each question: {"cpus": "0-3"} or {"error": "..."}, and the time of one call in ns.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/utils/cpuset"
)

type cpu struct{ CPU, Core, Socket, NUMA, Uncore, Cluster int }

type question struct {
	Topology, Mode, Strategy, Available string
	PreferUncore                        bool `json:"prefer_uncore"`
	GroupSize                           int  `json:"group_size"`
	Num                                 int
	Time                                bool // whether to repeat the call until its time is measurable
}

type answer struct {
	CPUs  string `json:"cpus"`
	Error string `json:"error,omitempty"`
	Ns    int64  `json:"go_ns,omitempty"`
}

// described does what topology.Discover does with what cAdvisor reports of a machine.
func described(cpus []cpu) *topology.CPUTopology {
	type core struct{ socket, cluster, core int }
	lowest := map[core]int{}
	for _, one := range cpus {
		key := core{one.Socket, one.Cluster, one.Core}
		if known, found := lowest[key]; !found || one.CPU < known {
			lowest[key] = one.CPU
		}
	}
	details := topology.CPUDetails{}
	for _, one := range cpus {
		uncore := one.Uncore
		if uncore < 0 {
			uncore = one.Socket
		}
		details[one.CPU] = topology.CPUInfo{
			NUMANodeID:    one.NUMA,
			SocketID:      one.Socket,
			CoreID:        lowest[core{one.Socket, one.Cluster, one.Core}],
			UncoreCacheID: uncore,
		}
	}
	return &topology.CPUTopology{
		NumCPUs:        len(cpus),
		NumCores:       len(lowest),
		NumSockets:     details.Sockets().Size(),
		NumNUMANodes:   details.NUMANodes().Size(),
		NumUncoreCache: details.UncoreCaches().Size(),
		CPUDetails:     details,
	}
}

func ask(machine *topology.CPUTopology, asked question) (cpuset.CPUSet, error) {
	available, err := cpuset.Parse(asked.Available)
	if err != nil {
		return available, err
	}
	strategy := CPUSortingStrategy(asked.Strategy)
	if asked.Mode == "numa-distributed" {
		// false: without the kubelet's option align-by-socket
		return takeByTopologyNUMADistributed(logr.Discard(), machine, available, asked.Num, asked.GroupSize, strategy, false)
	}
	return takeByTopologyNUMAPacked(logr.Discard(), machine, available, asked.Num, strategy, asked.PreferUncore)
}

func timed(machine *topology.CPUTopology, asked question) int64 {
	started, calls := time.Now(), int64(0)
	for time.Since(started) < 300*time.Millisecond {
		_, _ = ask(machine, asked)
		calls++
	}
	return time.Since(started).Nanoseconds() / calls
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<22)
	decoder, encoder := json.NewDecoder(lines), json.NewEncoder(os.Stdout)
	var machines map[string][]cpu
	if err := decoder.Decode(&machines); err != nil {
		log.Fatal(err)
	}
	known := map[string]*topology.CPUTopology{}
	for name, cpus := range machines {
		known[name] = described(cpus)
	}
	for decoder.More() {
		var asked question
		if err := decoder.Decode(&asked); err != nil {
			log.Fatal(err)
		}
		cpus, err := ask(known[asked.Topology], asked)
		given := answer{CPUs: cpus.String()}
		if err != nil {
			given.Error = err.Error()
		}
		if asked.Time {
			given.Ns = timed(known[asked.Topology], asked)
		}
		if err := encoder.Encode(given); err != nil {
			log.Fatal(err)
		}
	}
}
