// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestAnUnreadableMountinfoIsNotTakenForARemount checks that Repair assumes that resctrl is still mounted with the same options if it
// cannot read mountinfo, or if a pod has made a line of it longer than 64 KiB. The plugin runs on the host, so both files that it reads
// have the line.
func TestAnUnreadableMountinfoIsNotTakenForARemount(t *testing.T) {
	long := "900 28 8:1 " + strings.Repeat("/"+strings.Repeat(`\040`, 255), 80) + " /var/lib/kubelet/pods/2/volume-subpaths/v/main/1 rw - ext4 /dev/sda1 rw\n"
	mbps := sim.IntelSpec()
	mbps.Options = "mba_MBps"
	for unit, spec := range map[string]sim.Spec{"per cent": sim.IntelSpec(), "MBps": mbps} {
		for name, read := range map[string]func(mounts []byte) ([]byte, error){
			"a long line": func(mounts []byte) ([]byte, error) { return append([]byte(long), mounts...), nil },
			"no mounts":   func([]byte) ([]byte, error) { return nil, syscall.ENOMEM },
		} {
			t.Run(unit+", "+name, func(t *testing.T) { wantNoRemount(t, sim.New(spec), read) })
		}
	}
}

// wantNoRemount applies classes, replaces the content of mountinfo by the result of `read`, and checks that Repair finds no drift. Then
// it removes a group, and checks that Repair restores only this group.
func wantNoRemount(t *testing.T, fs *sim.FS, read func(mounts []byte) ([]byte, error)) {
	t.Helper()
	disturbed := false
	b := newBackend(altered{fs, func(path string, data []byte, err error) ([]byte, error) {
		if disturbed && strings.HasSuffix(path, "/mountinfo") {
			return read(data)
		}
		return data, err
	}}, nil)
	apply(t, b, twoPartitions)
	before := b.Schemata()

	disturbed = true
	for range 2 {
		wantNoDrift(t, b)
	}
	must(t, fs.Remove(sim.MountPoint+"/qos-gold"))
	wantRepair(t, b, "resctrl group qos-gold was removed")
	if diff := cmp.Diff(before, b.Schemata()); diff != "" {
		t.Errorf("the values of the classes changed (-before +now):\n%s", diff)
	}
}
