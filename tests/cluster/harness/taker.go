// Command taker runs in a container and takes memory or hugepages, as the programs of users do.
//
//	taker memory BYTES        ordinary memory
//	taker pages SIZE BYTES    hugepages of this size, in bytes
//
// It maps the memory, touches each page of it, and prints a line of JSON: {"error": "ENOMEM"} when the kernel refuses
// the mapping, or {"nodes": {"0": BYTES}} with what lies on each NUMA node. With -hold it then waits to be killed;
// -untouched leaves the pages reserved until SIGUSR1, at which it touches them and prints the second line.
//
// On a node, as root, it measures how fast somebody else puts a file right:
//
//	taker repair FILE COUNT   writes 0 into the file COUNT times, and prints {"seconds": [...]}: how long it stayed so
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	basePage      = 4096
	mapHugetlb    = 0x40000
	hugetlbShift  = 26 // MAP_HUGE_SHIFT: the binary logarithm of the page's size is above this bit
	kilobyte      = 1024
	numaMaps      = "/proc/self/numa_maps"
	pageSizeField = "kernelpagesize_kB"
	repairCheck   = 200 * time.Microsecond
	repairPause   = 100 * time.Millisecond
)

var (
	hold      = flag.Bool("hold", false, "keep the memory until the process is killed")
	untouched = flag.Bool("untouched", false, "reserve the memory without touching it")
)

func main() {
	flag.Parse()
	arguments := flag.Args()
	if arguments[0] == "repair" {
		show(map[string]any{"seconds": repairs(arguments[1], int(number(arguments[2])))})
		return
	}
	touch := make(chan os.Signal, 1)
	signal.Notify(touch, syscall.SIGUSR1)
	page, flags := uint64(basePage), syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS
	if arguments[0] == "pages" {
		page = number(arguments[1])
		flags |= mapHugetlb | bits.TrailingZeros64(page)<<hugetlbShift
	}
	size := number(arguments[len(arguments)-1])
	memory, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if errors.Is(err, syscall.ENOMEM) {
		show(map[string]any{"error": "ENOMEM"})
		return
	}
	check(err)
	take := func() {
		for offset := uint64(0); offset < size; offset += page {
			memory[offset] = 1
		}
	}
	taken := func() {
		show(map[string]any{"nodes": nodes(uintptr(unsafe.Pointer(&memory[0])))})
	}
	if !*untouched {
		take()
	}
	taken()
	for *hold {
		<-touch
		take()
		taken()
	}
}

// repairs returns how many seconds the file had not its former content after each time that 0 was written into it.
func repairs(name string, count int) []float64 {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	check(err)
	var before, now [64]byte
	length, _ := file.ReadAt(before[:], 0)
	var seconds []float64
	for range count {
		started := time.Now()
		_, err := file.WriteAt([]byte("0"), 0)
		check(err)
		for now != before {
			if time.Since(started) > time.Minute {
				check(fmt.Errorf("%s stays 0, and is not %s again", name, before[:length]))
			}
			time.Sleep(repairCheck)
			clear(now[:])
			file.ReadAt(now[:], 0)
		}
		seconds = append(seconds, time.Since(started).Seconds())
		clear(now[:])
		time.Sleep(repairPause)
	}
	return seconds
}

// nodes reads how many bytes of the mapping at an address lie on each NUMA node. The kernel may have joined the mapping
// with another one below it, and the file has no end addresses: so the last mapping that begins before counts.
func nodes(address uintptr) map[string]uint64 {
	text, err := os.ReadFile(numaMaps)
	check(err)
	found := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		start, err := strconv.ParseUint(fields[0], 16, 64)
		check(err)
		if uintptr(start) > address {
			break
		}
		clear(found)
		size, pages := uint64(0), map[string]uint64{}
		for _, field := range fields[1:] {
			name, value, _ := strings.Cut(field, "=")
			if name == pageSizeField {
				size = number(value) * kilobyte
			} else if node, isNode := strings.CutPrefix(name, "N"); isNode {
				pages[node] = number(value)
			}
		}
		for node, count := range pages {
			found[node] += count * size
		}
	}
	return found
}

func show(result map[string]any) {
	check(json.NewEncoder(os.Stdout).Encode(result))
}

func number(text string) uint64 {
	value, err := strconv.ParseUint(text, 10, 64)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "taker:", err)
		os.Exit(1)
	}
}
