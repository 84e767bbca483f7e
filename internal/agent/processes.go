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
)

// processTimes tells when processes of the host were started, in clock ticks after its boot (proc_pid_stat(5)). It is nil where /proc is
// not that of the host's own PID namespace, which has the kernel's threads: numbers that the runtime tells mean nothing there.
func processTimes(host hostfs.Root) func(pid int) (at uint64, exists bool) {
	threads, err := host.ReadFile("/proc/2/stat")
	if err != nil || !bytes.Contains(threads, []byte("(kthreadd)")) {
		return nil
	}
	return func(pid int) (uint64, bool) {
		stat, err := host.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return startTime(stat), !errors.Is(err, fs.ErrNotExist)
	}
}

// startTime is field 22; the second, the name, may have any characters and is in parentheses. It is 0 for what is not of this form.
func startTime(stat []byte) uint64 {
	const state, start = 3, 22
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= start-state {
		return 0
	}
	at, _ := strconv.ParseUint(string(fields[start-state]), 10, 64)
	return at
}
