// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// limboFS returns a resctrl in which the RMIDs of removed groups stay in limbo. It has two RMIDs besides that of the root group.
func limboFS() *resctrl.FS {
	spec := resctrl.IntelSpec()
	spec.RMIDs, spec.Limbo = 3, true
	return resctrl.New(spec)
}

func TestRMIDsStayInLimboUntilTheyAreDrained(t *testing.T) {
	for name, remove := range map[string]func(f *resctrl.FS) error{
		"removed groups": func(f *resctrl.FS) error { return f.Remove(resctrl.MountPoint + "/g") },
		"an unmount": func(f *resctrl.FS) error {
			f.Unmount()
			return f.Mount("resctrl", resctrl.MountPoint, "resctrl", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := limboFS()
			err := errors.Join(f.Mkdir(resctrl.MountPoint+"/g"), f.Mkdir(resctrl.MountPoint+"/g/mon_groups/m"), remove(f))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Mkdir(resctrl.MountPoint + "/h"); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("with all RMIDs in limbo, mkdir returned %v, want EBUSY", err)
			}
			f.Drain()
			if err := f.Mkdir(resctrl.MountPoint + "/h"); err != nil {
				t.Errorf("after the drain: %v", err)
			}
		})
	}
}

// TestLimboDrainsWhileUnmounted creates a group again. Without the drain, both RMIDs would still be in limbo.
func TestLimboDrainsWhileUnmounted(t *testing.T) {
	f := limboFS()
	err := errors.Join(f.Mkdir(resctrl.MountPoint+"/g"), f.Mkdir(resctrl.MountPoint+"/h"))
	f.Unmount()
	f.Drain()
	err = errors.Join(err, f.Mount("resctrl", resctrl.MountPoint, "resctrl", ""), f.Mkdir(resctrl.MountPoint+"/g"))
	if err != nil {
		t.Error(err)
	}
}

// TestAControlGroupThatGetsNoCacheKeepsNoRMID: there is one RMID besides that of the root group. The kernel takes it for
// a new group before it looks for cache, and must free it if there is no cache.
func TestAControlGroupThatGetsNoCacheKeepsNoRMID(t *testing.T) {
	spec := resctrl.IntelSpec()
	spec.L2, spec.MB, spec.L3.Shareable, spec.RMIDs = nil, nil, 0, 2
	f := resctrl.New(spec)
	if err := f.WriteFile(resctrl.MountPoint+"/mode", []byte("exclusive\n")); err != nil {
		t.Fatal(err)
	}

	if err := f.Mkdir(resctrl.MountPoint + "/g"); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the root group has all cache for itself, but mkdir returned %v", err)
	}

	if err := f.WriteFile(resctrl.MountPoint+"/mode", []byte("shareable\n")); err != nil {
		t.Fatal(err)
	}

	if err := f.Mkdir(resctrl.MountPoint + "/g"); err != nil {
		t.Error(err)
	}
}
