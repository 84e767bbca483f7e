// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// counter has the kernel's counter of one kind of I/O, and the limit that applies to it.
type counter struct {
	key         string // in io.stat
	used, limit classes.Measure
}

// counters returns the counters in the order of the kinds of limits.
func counters() [iocgroup.RateKinds]counter {
	of := func(key, used, help, limit, unit string) counter {
		return counter{key,
			classes.Measure{Name: used, Part: "device", Help: help + " a disk of the volume, by its pod."},
			classes.Measure{Name: limit, Part: "device", Help: "The limit in force for the pod on a disk of the volume, in " + unit + " a second."},
		}
	}
	return [iocgroup.RateKinds]counter{
		of("rbytes", "read_bytes_total", "Bytes read from", "max_read_bps", "bytes"),
		of("wbytes", "written_bytes_total", "Bytes written to", "max_write_bps", "bytes"),
		of("rios", "reads_total", "Read operations on", "max_read_iops", "operations"),
		of("wios", "writes_total", "Write operations on", "max_write_iops", "operations"),
	}
}

func measures() (all []classes.Measure) {
	for _, c := range counters() {
		all = append(all, c.used, c.limit)
	}
	return all
}

// MeasureVolume implements classes.VolumeMeter. The kernel applies the limits of a volume to all that the pod does on the disks of the volume,
// so the reading has all I/O of the pod on these disks. A kind of I/O without a limit has no value for the limit.
func (b *Backend) MeasureVolume(_ context.Context, volume classes.Holder) (classes.Reading, error) {
	devices := b.Device(volume.ID)
	if devices == "" {
		return nil, nil // the disks are not known, so the volume has no limits
	}
	group, err := b.open(volume)
	if errors.Is(err, cgroup.ErrNoCgroup) {
		return nil, fmt.Errorf("%w: %w", classes.ErrEnded, err)
	}
	if err != nil {
		return nil, err
	}
	data, err := b.cgroups.FS.ReadFile(path.Join(group.Dir, "io.stat"))
	if err != nil {
		return nil, fmt.Errorf("measure I/O: %w", err)
	}
	limits, err := group.Read(nil)
	if err != nil {
		return nil, fmt.Errorf("read the limits of the pod: %w", err)
	}

	type keyOfDisk struct {
		dev iocgroup.Device
		key string
	}
	reading, used := classes.Reading{}, map[keyOfDisk]uint64{}
	iocgroup.ParseStat(data, func(dev iocgroup.Device, key string, value uint64) { used[keyOfDisk{dev, key}] = value })
	for number := range strings.SplitSeq(devices, ",") {
		dev, err := iocgroup.ParseDevice(number)
		part := group.Machine.PartName(dev)
		if err != nil || part == "" {
			continue
		}
		for kind, c := range counters() {
			reading[classes.Series{Measure: c.used.Name, Part: part}] = float64(used[keyOfDisk{dev, c.key}]) // 0 before the first I/O
			if limit := limits[iocgroup.Setting{Device: dev}][kind]; limit != 0 {
				reading[classes.Series{Measure: c.limit.Name, Part: part}] = float64(limit)
			}
		}
	}
	return reading, nil
}
