// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// These are the names of the measures. cAdvisor gives the measures of a container the same names, with the prefix "container_".
const (
	readBytes  = "fs_reads_bytes_total"
	writeBytes = "fs_writes_bytes_total"
	reads      = "fs_reads_total"
	writes     = "fs_writes_total"
	waiting    = "pressure_io_waiting_seconds_total"
	stalled    = "pressure_io_stalled_seconds_total"
)

func measures() []classes.Measure {
	return []classes.Measure{
		{Name: readBytes, Part: "device", Help: "Bytes that the containers or pods of a class have read from a disk."},
		{Name: writeBytes, Part: "device", Help: "Bytes that the containers or pods of a class have written to a disk."},
		{Name: reads, Part: "device", Help: "Read operations of the containers or pods of a class on a disk."},
		{Name: writes, Part: "device", Help: "Write operations of the containers or pods of a class on a disk."},
		{Name: waiting, Help: "Time in which some task of a container or pod waited for I/O, added up over the containers or pods of a class."},
		{Name: stalled, Help: "Time in which all tasks of a container or pod waited for I/O, added up over the containers or pods of a class."},
	}
}

var _ classes.HolderMeter = (*Backend)(nil)

// MeasureHolder implements classes.HolderMeter. The reading includes the I/O of cgroups that the target has created
// below its own cgroup. In cgroup v2, it also includes the I/O of cgroups that were removed since. On machines with
// cgroup v1, and on kernels without pressure stall information, the reading has no values of pressure.
func (b *Backend) MeasureHolder(_ context.Context, target classes.Holder) (classes.Reading, error) {
	group, err := b.openRunning(target)
	if err != nil {
		return nil, err
	}

	return cgroup.ReadUsage(b.cgroups.FS, group.Dir, usageFiles(group.Version, group.Machine.PartName), func() error {
		_, err := b.openRunning(target)
		return err
	})
}

// SumsEnded implements classes.HolderMeter. With cgroup v1, the sums of a cgroup leave out cgroups that were removed.
func (b *Backend) SumsEnded() bool { return b.live.Load().machine.Version == 2 }

// openRunning opens the cgroup of a target. The error is classes.ErrEnded if the target has no cgroup.
func (b *Backend) openRunning(target classes.Holder) (iocgroup.Group, error) {
	group, err := b.cgroups.Open(target, b.live.Load().machine)
	if errors.Is(err, cgroup.ErrNoCgroup) {
		err = fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	return group, err
}

// usageFiles returns the files that count I/O in a cgroup of the given cgroup version. Their parsers skip disks without
// a name.
func usageFiles(version int, name func(iocgroup.Device) string) []cgroup.UsageFile {
	if version == 1 {
		return []cgroup.UsageFile{
			{Name: "blkio.throttle.io_service_bytes_recursive", Add: parseService(readBytes, writeBytes, name)},
			{Name: "blkio.throttle.io_serviced_recursive", Add: parseService(reads, writes, name)},
		}
	}
	return []cgroup.UsageFile{
		{Name: "io.stat", Add: parseIOStat(name)},
		{Name: "io.pressure", Add: cgroup.Pressure(map[string]string{"some": waiting, "full": stalled})},
	}
}

// parseIOStat returns the parser of io.stat.
func parseIOStat(name func(iocgroup.Device) string) func(classes.Reading, []byte) {
	measures := map[string]string{"rbytes": readBytes, "wbytes": writeBytes, "rios": reads, "wios": writes}
	return func(reading classes.Reading, data []byte) {
		iocgroup.ParseStat(data, func(dev iocgroup.Device, key string, value uint64) {
			if part, measure := name(dev), measures[key]; measure != "" && part != "" {
				reading[classes.Series{Measure: measure, Part: part}] = float64(value)
			}
		})
	}
}

// parseService returns the parser of a file of cgroup v1, which has lines of the form "8:0 Read 4096". Since Linux 6.10
// (blk_should_throtl in block/blk-throttle.h), the kernel counts the I/O to a disk only after some cgroup has got a
// limit for the disk. Until then, the file has no line for the disk.
func parseService(read, write string, name func(iocgroup.Device) string) func(classes.Reading, []byte) {
	measures := map[string]string{"Read": read, "Write": write}
	return func(reading classes.Reading, data []byte) {
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) != 3 || measures[fields[1]] == "" {
				continue
			}
			dev, errDevice := iocgroup.ParseDevice(fields[0])
			value, err := strconv.ParseUint(fields[2], 10, 64)
			if part := name(dev); errDevice == nil && err == nil && part != "" {
				reading[classes.Series{Measure: measures[fields[1]], Part: part}] = float64(value)
			}
		}
	}
}
