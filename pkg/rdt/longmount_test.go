// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// longMounts is a machine on which a pod has made a line of mountinfo longer than 64 KiB. The plugin runs on the host, so both files that
// it reads have the line.
type longMounts struct {
	*sim.FS
	long bool
}

func (l *longMounts) ReadFile(path string) ([]byte, error) {
	data, err := l.FS.ReadFile(path)
	if l.long && strings.HasSuffix(path, "/mountinfo") {
		data = append([]byte("900 28 8:1 "+strings.Repeat("/"+strings.Repeat(`\040`, 255), 80)+" /var/lib/kubelet/pods/2/volume-subpaths/v/main/1 rw - ext4 /dev/sda1 rw\n"), data...)
	}
	return data, err
}

// noMounts is a machine on which mountinfo cannot be read while it is hidden.
type noMounts struct {
	*sim.FS
	hidden bool
}

func (n *noMounts) ReadFile(path string) ([]byte, error) {
	if n.hidden && strings.HasSuffix(path, "/mountinfo") {
		return nil, syscall.ENOMEM
	}
	return n.FS.ReadFile(path)
}

// TestAnUnreadableMountinfoIsNotTakenForARemount checks that Repair assumes that resctrl is still mounted with the same
// options if it cannot read mountinfo, or if mountinfo has a long line.
func TestAnUnreadableMountinfoIsNotTakenForARemount(t *testing.T) {
	mbps := sim.IntelSpec()
	mbps.Options = "mba_MBps"
	for name, spec := range map[string]sim.Spec{"per cent": sim.IntelSpec(), "MBps": mbps} {
		long, none := &longMounts{FS: sim.New(spec)}, &noMounts{FS: sim.New(spec)}
		t.Run(name+", a long line", func(t *testing.T) { wantNoRemount(t, long, &long.long) })
		t.Run(name+", no mounts", func(t *testing.T) { wantNoRemount(t, none, &none.hidden) })
	}
}

// wantNoRemount applies classes, sets `disturbed`, and checks that Repair finds no drift. Then it removes a group, and checks that Repair
// restores only this group.
func wantNoRemount(t *testing.T, host resctrl.FS, disturbed *bool) {
	t.Helper()
	b := newBackend(host, nil)
	apply(t, b, twoPartitions)
	before := b.Schemata()

	*disturbed = true
	for range 2 {
		if drift, err := b.Repair(t.Context()); err != nil || len(drift.Found) > 0 {
			t.Errorf("Repair: %v, %.200v", drift.Found, err)
		}
	}
	if err := host.Remove(sim.MountPoint + "/qos-gold"); err != nil {
		t.Fatal(err)
	}
	if drift, err := b.Repair(t.Context()); err != nil || len(drift.Found) != 1 {
		t.Errorf("Repair without a group: %v, %.200v", drift.Found, err)
	}
	if diff := cmp.Diff(before, b.Schemata()); diff != "" {
		t.Errorf("the values of the classes changed (-before +now):\n%s", diff)
	}
}
