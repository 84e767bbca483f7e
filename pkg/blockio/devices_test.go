// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func linked() *simcgroup.Machine { return iotest.AddLinks(disks(simcgroup.New())) }

// TestLaterItemsOverrideEarlierOnes has a disk, 8:0, that both items match, and a disk, 8:16, that only the first one
// matches.
func TestLaterItemsOverrideEarlierOnes(t *testing.T) {
	f := newFixture(t, linked(), classes.ContainerScope).apply(`
Classes:
  mixed:
  - Devices: ["/dev/sd[a-z]"]
    ThrottleReadBps: 50M
    ThrottleWriteBps: 10M
    ThrottleReadIOPS: 10k
  - Devices: ["/dev/disk/by-id/*SSD"]
    ThrottleReadBps: 100M
    ThrottleReadIOPS: 0
`)

	want := map[string]map[string]string{"mixed": {iocgroup.IOMax: "8:0 rbps=100000000 wbps=10000000 riops=max wiops=max\n" +
		"8:16 rbps=50000000 wbps=10000000 riops=10000 wiops=max"}}
	if diff := cmp.Diff(want, f.backend.Values()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAPreviewIsTheStatusAfterApply(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope)
	const lost = "Classes: {lost: [{Devices: [/dev/nvme9n1], ThrottleReadBps: 50M}]}"
	preview, err := f.backend.Preview(t.Context(), f.parse(lost))
	if err != nil || len(preview.Degraded) != 1 {
		t.Errorf("got %+v, %v; want one degraded class", preview, err)
	}
	if diff := cmp.Diff(f.apply(lost).backend.Status(), preview); diff != "" {
		t.Errorf("preview (-status +preview):\n%s", diff)
	}
}

func TestTheStatusReportsDevicesThatAreNoDisks(t *testing.T) {
	f := newFixture(t, linked(), classes.ContainerScope).apply(`
Classes:
  some: [{Devices: [/dev/sda1, /dev/nvme9n1, /dev/null], ThrottleReadBps: 50M}]
  lost: [{Devices: ["/dev/nvme9*", "/dev/vd?"], ThrottleReadBps: 50M}, {Devices: [/dev/sdb], ThrottleReadBps: 50M}]
  none: [{Devices: [], ThrottleReadBps: 50M}]
  fine: [{Devices: [/dev/sdb], ThrottleReadBps: 50M}]
`)

	want := classes.BackendStatus{
		Degraded: map[string]string{
			"some": "pattern /dev/nvme9n1 matches no block device on this machine; pattern /dev/null matches no block device on this machine",
			"lost": "pattern /dev/nvme9* matches no block device on this machine; pattern /dev/vd? matches no block device on this machine",
			"none": "Classes.none[0] lists no device",
		},
		Conditions: []classes.Condition{
			{Type: "DevicesMatched", Reason: "SomeIgnored", Message: "/dev/null matches no block device; /dev/nvme9* matches no block device; " +
				"/dev/nvme9n1 matches no block device; /dev/vd? matches no block device; /dev/null is ignored: stat /dev/null: block device required; correct the field Devices, or attach the devices"},
			{Type: "WholeDisks", Reason: "PartitionMeansDisk",
				Message: "/dev/sda1 is a partition: the class applies to its whole disk sda (8:0); name the disk"},
		},
	}

	if diff := cmp.Diff(want, f.backend.Status()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTheSuppliedClassFileLimitsAnyTypeOfDisk: the patterns of a Devices list are alternatives, so a node needs a disk
// for only one of them.
func TestTheSuppliedClassFileLimitsAnyTypeOfDisk(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/classes.yaml")
	must(t, err)

	_, section, _ := strings.Cut(string(text), "  blockio:\n")
	section, _, _ = strings.Cut(section, "\n\n")

	for name, number := range map[string]uint32{"sdc": 8, "vda": 253, "xvdb": 202, "nvme1n1": 259, "mmcblk0": 179} {
		t.Run(name, func(t *testing.T) {
			machine := simcgroup.New()
			machine.AddDisk(name, number, 0)
			f := newFixture(t, machine, classes.ContainerScope).apply(section)
			want := classes.BackendStatus{Conditions: []classes.Condition{{Type: "DevicesMatched", Healthy: true, Reason: "AllMatched",
				Message: "every entry of a Devices list matches block devices only"}}}
			if diff := cmp.Diff(want, f.backend.Status(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := f.backend.Values()["throttled"][iocgroup.IOMax]; !strings.HasPrefix(got, fmt.Sprintf("%d:0 rbps=20000000 wbps=20000000", number)) {
				t.Errorf("io.max of the class is %q, want the throttles of the class file", got)
			}
		})
	}
}

// TestAConfigurationWithLimitsThatTheKernelRefusesIsRefused has limits of 1, which cgroup v2 refuses and cgroup v1
// accepts.
func TestAConfigurationWithLimitsThatTheKernelRefusesIsRefused(t *testing.T) {
	const section = "Classes:\n  a:\n  - Devices: [/dev/sda]\n    ThrottleReadBps: 1\n  - Devices: [/dev/sdb]\n    ThrottleWriteIOPS: 1\n"
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	err := f.backend.Apply(t.Context(), f.parse(section))
	if got := classes.SplitErrors(err); len(got) != 2 || !strings.Contains(got[1].Error(), "Classes.a[1].ThrottleWriteIOPS: the kernel refuses 1") {
		t.Errorf("got %v", err)
	}
	if _, err := f.backend.Adjust(classes.Holder{}, "", "slow"); err != nil {
		t.Errorf("after a refused configuration, Adjust to a class of the previous one returns %v, want no error", err)
	}
	legacy := newFixture(t, disks(simcgroup.NewLegacy()), classes.ContainerScope)
	if err := legacy.backend.Check(t.Context(), legacy.parse(section)); err != nil {
		t.Errorf("with cgroup v1, a limit of 1 returns %v, want no error", err)
	}
}
