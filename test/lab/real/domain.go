// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// domain is an L3 cache, and the CPUs that share it and that this process may use.
type domain struct {
	cpus []int
	size int // of the cache, in bytes
}

// findDomain returns the first domain in which this process may use at least two CPUs.
func findDomain(sys fs.FS, allowed *unix.CPUSet) (domain, error) {
	caches, err := fs.Glob(sys, "devices/system/cpu/cpu*/cache/index*/level")
	if err != nil {
		return domain{}, err
	}

	for _, file := range caches {
		read := func(name string) string {
			data, _ := fs.ReadFile(sys, path.Join(path.Dir(file), name)) // a missing file is parsed as an empty one
			return strings.TrimSpace(string(data))
		}
		if read("level") != "3" {
			continue
		}
		kibibytes, err := strconv.Atoi(strings.TrimSuffix(read("size"), "K"))
		if err != nil {
			return domain{}, fmt.Errorf("size of the L3 cache in /sys/%s: %w", path.Dir(file), err)
		}
		cpus, err := parseCPUs(read("shared_cpu_list"))
		if err != nil {
			return domain{}, fmt.Errorf("/sys/%s/shared_cpu_list: %w", path.Dir(file), err)
		}
		d := domain{size: kibibytes << 10}
		for _, cpu := range cpus {
			if allowed.IsSet(cpu) {
				d.cpus = append(d.cpus, cpu)
			}
		}
		if len(d.cpus) > 1 {
			return d, nil
		}
	}

	return domain{}, fmt.Errorf("no two CPUs that this program may use share an L3 cache")
}

// parseCPUs parses a list in the kernel's format, e.g. "0-3,8".
func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for _, part := range strings.Split(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, err
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return nil, err
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}

	return cpus, nil
}
