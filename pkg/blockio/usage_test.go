// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func of(measure, part string) classes.Series { return classes.Series{Measure: measure, Part: part} }

// TestAContainerIsMeasuredByItsCgroup has the files of a container's cgroup. Disk 9:0 was added after the last inspection.
func TestAContainerIsMeasuredByItsCgroup(t *testing.T) {
	const disk, unknown = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=5 dios=6 cost.usage=7\n", "(unknown) rbytes=70000 wbytes=71000 rios=72 wios=73\n"
	const noPressure = "some avg10=0.00 total=0\nfull avg10=0.00 total=0\n"
	used := classes.Reading{of(readBytes, "sda"): 4096, of(writeBytes, "sda"): 8192, of(reads, "sda"): 1, of(writes, "sda"): 2}
	with := func(more classes.Reading) classes.Reading {
		all := maps.Clone(used)
		maps.Copy(all, more)
		return all
	}
	noWait := classes.Reading{of(waiting, ""): 0, of(stalled, ""): 0}
	for _, test := range []struct {
		name    string
		machine *simcgroup.Machine
		files   map[string]string
		want    classes.Reading
	}{
		{"cgroup v2, with a device without I/O, whose line some kernels do not end", simcgroup.New(), map[string]string{
			"io.stat":     "8:16 " + disk + "9:0 rbytes=1 wbytes=0 rios=1 wios=0\n",
			"io.pressure": "some avg10=1.00 avg60=2.00 avg300=3.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n",
		}, with(classes.Reading{of(waiting, ""): 2.5, of(stalled, ""): 0.5})},
		{"a path of an NVMe multipath device or a ZFS pool, before a disk", simcgroup.New(),
			map[string]string{"io.stat": unknown + disk, "io.pressure": noPressure}, with(noWait)},
		{"two such rows after a disk", simcgroup.New(),
			map[string]string{"io.stat": disk + unknown + unknown, "io.pressure": noPressure}, with(noWait)},
		{"cgroup v1", simcgroup.NewLegacy(), map[string]string{
			"blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 1\n8:0 Total 12288\nTotal 12288\n",
			"blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n",
		}, used},
		{"cgroup v1 since Linux 6.10, which counts only disks for which some cgroup has had a limit", simcgroup.NewLegacy(), map[string]string{
			"blkio.throttle.io_service_bytes_recursive": "Total 0\n",
			"blkio.throttle.io_serviced_recursive":      "8:16 Read 1\n8:16 Write 0\n8:16 Total 1\nTotal 1\n",
		}, classes.Reading{of(reads, "sdb"): 1, of(writes, "sdb"): 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, dir := newFixture(t, disks(test.machine), classes.ContainerScope).apply(throttling), v2Dir
			if _, legacy := test.files["io.stat"]; !legacy {
				dir = v1Dir
			}
			for file, text := range test.files {
				f.machine.AddFile(dir+"/"+file, text)
			}
			got, err := f.backend.MeasureHolder(t.Context(), container())
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
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
