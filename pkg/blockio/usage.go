// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"

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

// MeasureHolder implements classes.HolderMeter. The reading includes the I/O of cgroups that the target has created below its
// own cgroup. In cgroup v2, it also includes the I/O of cgroups that were removed since. On machines with cgroup v1, and on
// kernels without pressure stall information, the reading has no pressure.
func (b *Backend) MeasureHolder(_ context.Context, target classes.Holder) (classes.Reading, error) {
	group, err := b.openRunning(target)
	if err != nil {
		return nil, err
	}

	reading := classes.Reading{}
	var problems []error
	for _, file := range usageFiles(group.Version) {
		data, err := b.cgroups.FS.ReadFile(path.Join(group.Dir, file.name))
		switch {
		case err == nil:
			file.parse(reading, data, group.Machine.PartName)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EOPNOTSUPP):
			problems = append(problems, fmt.Errorf("measure I/O: %w", err))
		}
	}
	if len(reading) == 0 {
		_, err := b.openRunning(target) // the cgroup may have been removed meanwhile
		problems = append(problems, err)
	}
	return reading, errors.Join(problems...)
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

// usageFile is a cgroup file that counts I/O. parse adds the values in the file to a reading, and skips disks without a name.
type usageFile struct {
	name  string
	parse func(reading classes.Reading, data []byte, name func(iocgroup.Device) string)
}

// usageFiles returns the files that count I/O in a cgroup of a version, with their parsers.
func usageFiles(version int) []usageFile {
	if version == 1 {
		return []usageFile{
			{"blkio.throttle.io_service_bytes_recursive", parseService(readBytes, writeBytes)},
			{"blkio.throttle.io_serviced_recursive", parseService(reads, writes)},
		}
	}
	return []usageFile{{"io.stat", parseIOStat}, {"io.pressure", parsePressure}}
}

// parseIOStat reads io.stat.
func parseIOStat(reading classes.Reading, data []byte, name func(iocgroup.Device) string) {
	measures := map[string]string{"rbytes": readBytes, "wbytes": writeBytes, "rios": reads, "wios": writes}
	for dev, counters := range iocgroup.ParseStat(data) {
		part := name(dev)
		for key, measure := range measures {
			if value, counted := counters[key]; counted && part != "" {
				reading[classes.Series{Measure: measure, Part: part}] = float64(value)
			}
		}
	}
}

// parsePressure reads io.pressure (Documentation/accounting/psi.rst). The totals in this file are microseconds.
func parsePressure(reading classes.Reading, data []byte, _ func(iocgroup.Device) string) {
	measures := map[string]string{"some": waiting, "full": stalled}
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(line, " ")
		_, total, _ := strings.Cut(rest, "total=")
		value, err := strconv.ParseUint(strings.TrimSpace(total), 10, 64)
		if measure := measures[kind]; measure != "" && err == nil {
			reading[classes.Series{Measure: measure}] = float64(value) / 1e6
		}
	}
}

// parseService returns the parser of a file of cgroup v1, which has lines of the form "8:0 Read 4096". Since Linux 6.10
// (blk_should_throtl in block/blk-throttle.h), the kernel counts the I/O to a disk only after some cgroup has got a
// limit for the disk. Until then, the file has no line for the disk.
func parseService(read, write string) func(classes.Reading, []byte, func(iocgroup.Device) string) {
	measures := map[string]string{"Read": read, "Write": write}
	return func(reading classes.Reading, data []byte, name func(iocgroup.Device) string) {
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
