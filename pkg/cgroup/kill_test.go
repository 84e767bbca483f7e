// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// populated adds the cgroup of the holder with process 10, its child cgroup with process 11, and the cgroup of another
// container with process 20.
func populated(m *simcgroup.Machine) *simcgroup.Machine {
	for pid, group := range map[int]string{10: dir, 11: dir + "/child", 20: "/kubepods/pod1/c2"} {
		m.AddCgroup(group)
		m.AddProcess(group, pid)
	}
	return m
}

func TestKillEndsTheProcessesOfOneContainerOnly(t *testing.T) {
	fault := func(m *simcgroup.Machine) *simcgroup.Machine {
		m.Inject(simcgroup.Fault{Op: "write", File: "cgroup.kill", Err: syscall.EOPNOTSUPP})
		return m
	}

	pod := classes.Holder{ID: "c1", Container: "main", CgroupsPath: "/kubepods/pod1"}
	for name, test := range map[string]struct {
		machine *simcgroup.Machine
		target  classes.Holder
		err     error
		left    []int // the processes that are left
	}{
		"all processes of the container end":            {populated(simcgroup.New()), holder, nil, []int{20}},
		"a cgroup that others may be in is refused":     {populated(simcgroup.New()), pod, ErrBadPath, []int{10, 11, 20}},
		"a container without a cgroup has no processes": {simcgroup.New(), holder, ErrNoCgroup, nil},
		"the error of the kernel is kept":               {fault(populated(simcgroup.New())), holder, syscall.EOPNOTSUPP, []int{10, 11, 20}},
		"cgroup v1 has no such file":                    {populated(simcgroup.NewLegacy()), holder, errNoKill, []int{10, 11, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Kill(test.machine, test.target); !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}

			var left []int
			for _, pid := range []int{10, 11, 20} {
				if _, err := test.machine.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup"); err == nil {
					left = append(left, pid)
				}
			}
			if !slices.Equal(left, test.left) {
				t.Errorf("after Kill, the processes %v are left, want %v", left, test.left)
			}
		})
	}
}
