// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
)

// processTimes returns a function that returns the start time of a process of the host, in clock ticks after the
// host's boot. It returns nil if /proc belongs to another PID namespace than the host's, because the PIDs that the
// runtime reports are not valid there. processTimes recognizes the host's PID namespace by the kernel's threads.
func processTimes(host hostfs.Root) func(pid int) (at uint64, exists bool) {
	threads, err := host.ReadFile("/proc/2/stat")
	if err != nil || !bytes.Contains(threads, []byte("(kthreadd)")) {
		return nil
	}

	return func(pid int) (uint64, bool) {
		const startTime = 22
		stat, err := host.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		at, parseErr := strconv.ParseUint(cgroup.StatField(stat, startTime), 10, 64)
		if parseErr != nil {
			at = 0
		}
		return at, !errors.Is(err, fs.ErrNotExist)
	}
}
