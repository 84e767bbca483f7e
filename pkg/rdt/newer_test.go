// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// newer is a resctrl whose root directory has a file that is unknown to this program.
type newer struct {
	*sim.FS
	file string
}

func (n newer) ReadDir(path string) ([]string, error) {
	names, err := n.FS.ReadDir(path)
	if err == nil && path == sim.MountPoint {
		names = append(names, n.file)
	}
	return names, err
}

func (n newer) ReadFile(path string) ([]byte, error) {
	if strings.HasPrefix(path, sim.MountPoint+"/"+n.file+"/") {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	return n.FS.ReadFile(path)
}

// TestFilesOfNewerKernelsAreNotTakenForGroups adds files to the root directory, as kernels after Linux 6.12 or the mount
// option debug do.
func TestFilesOfNewerKernelsAreNotTakenForGroups(t *testing.T) {
	for _, file := range []string{"mba_MBps_event", "mbm_L3_assignments", "ctrl_hw_id"} {
		t.Run(file, func(t *testing.T) {
			host := newer{sim.New(kernels()["without cpu_resctrl_groups"]), file}
			b := newBackend(host, nil)
			if err := b.Check(t.Context(), parse(t, twoPartitions)); err != nil {
				t.Errorf("check: %v", err)
			}

			if err := b.Apply(t.Context(), parse(t, twoPartitions)); err != nil {
				t.Errorf("apply: %v", err)
			}

			repair(t, b)

			host.AddTask(100, "qos-gold")
			if got, err := resctrl.At(host, sim.MountPoint).GroupOfTask(100); err != nil || got != "qos-gold" {
				t.Errorf("the group of the thread is %q with the error %v, want qos-gold", got, err)
			}
		})
	}
}
