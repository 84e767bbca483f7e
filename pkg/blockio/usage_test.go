// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func (f fixture) measured(target classes.Holder) classes.Reading {
	f.t.Helper()
	reading, err := f.backend.MeasureHolder(f.t.Context(), target)
	must(f.t, err)
	return reading
}

func of(measure, part string) classes.Series { return classes.Series{Measure: measure, Part: part} }

func TestAContainerIsMeasuredByItsCgroup(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	// The line of 8:16 ends without a newline, as some kernels write it for a device without I/O. 9:0 was added after the last inspection.
	f.machine.AddFile(v2Dir+"/io.stat", "8:16 8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=5 dios=6 cost.usage=7\n9:0 rbytes=1 wbytes=0 rios=1 wios=0\n")
	f.machine.AddFile(v2Dir+"/io.pressure", "some avg10=1.00 avg60=2.00 avg300=3.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n")
	want := classes.Reading{
		of(readBytes, "sda"): 4096, of(writeBytes, "sda"): 8192, of(reads, "sda"): 1, of(writes, "sda"): 2,
		of(waiting, ""): 2.5, of(stalled, ""): 0.5,
	}
	if diff := cmp.Diff(want, f.measured(container())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAContainerOfCgroupV1IsMeasuredByThrottling(t *testing.T) {
	f := newFixture(t, disks(simcgroup.NewLegacy()), classes.ContainerScope).apply(throttling)
	f.machine.AddFile(v1Dir+"/blkio.throttle.io_service_bytes_recursive", "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 1\n8:0 Total 12288\nTotal 12288\n")
	f.machine.AddFile(v1Dir+"/blkio.throttle.io_serviced_recursive", "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n")
	want := classes.Reading{of(readBytes, "sda"): 4096, of(writeBytes, "sda"): 8192, of(reads, "sda"): 1, of(writes, "sda"): 2}
	if diff := cmp.Diff(want, f.measured(container())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestADiskThatCgroupV1DoesNotCountHasNoUsage simulates cgroup v1 since Linux 6.10, which lists only the disks for
// which some cgroup has had a limit. The kernel of the VM tests does the same.
func TestADiskThatCgroupV1DoesNotCountHasNoUsage(t *testing.T) {
	f := newFixture(t, disks(simcgroup.NewLegacy()), classes.ContainerScope).apply(throttling)
	f.machine.AddFile(v1Dir+"/blkio.throttle.io_service_bytes_recursive", "Total 0\n")
	f.machine.AddFile(v1Dir+"/blkio.throttle.io_serviced_recursive", "8:16 Read 1\n8:16 Write 0\n8:16 Total 1\nTotal 1\n")
	want := classes.Reading{of(reads, "sdb"): 1, of(writes, "sdb"): 0}
	if diff := cmp.Diff(want, f.measured(container())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAContainerWithoutCgroupHasEnded(t *testing.T) {
	f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
	gone := container()
	gone.CgroupsPath += "-gone"
	if reading, err := f.backend.MeasureHolder(t.Context(), gone); !errors.Is(err, classes.ErrEnded) {
		t.Errorf("measured %v, error %v, want %v", reading, err, classes.ErrEnded)
	}
}

func FuzzUsage(f *testing.F) {
	for _, text := range []string{
		"8:0 rbytes=1 wbytes=2 rios=3 wios=4\n", "8:0\n8:16 rbytes=x\n", "some avg10=0.00 total=12\nfull total=\n", "8:0 Read 1\nTotal 1\n", "rbytes=1", ":",
	} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		reading := classes.Reading{}
		for _, file := range slices.Concat(usageFiles(2, iocgroup.Device.String), usageFiles(1, iocgroup.Device.String)) {
			file.Add(reading, data)
		}
		for series, value := range reading {
			if value < 0 || !series.Cumulative() {
				t.Errorf("the series %v is negative or not cumulative: %v", series, value)
			}
		}
	})
}

// TestARowWithoutADeviceNumberIsNotCountedForAnyDisk uses rows of io.stat that the kernel writes for a path of an NVMe
// multipath device, or for a ZFS pool.
func TestARowWithoutADeviceNumberIsNotCountedForAnyDisk(t *testing.T) {
	const disk, unknown = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n", "(unknown) rbytes=70000 wbytes=71000 rios=72 wios=73 dbytes=0 dios=0\n"
	for _, rows := range []string{disk + unknown, unknown + disk, disk + unknown + unknown + "8:16 rbytes=1 wbytes=1 rios=1 wios=1\n"} {
		f := newFixture(t, disks(simcgroup.New()), classes.ContainerScope).apply(throttling)
		f.machine.AddFile(v2Dir+"/io.stat", rows)
		got := f.measured(container())
		for series, want := range map[classes.Series]float64{of(readBytes, "sda"): 4096, of(writeBytes, "sda"): 8192, of(reads, "sda"): 1, of(writes, "sda"): 2} {
			if got[series] != want {
				t.Errorf("%q: %v is %v, want %v", rows, series, got[series], want)
			}
		}
	}
}
