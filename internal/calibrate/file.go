// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"bytes"
	"fmt"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Report is the content of a file that calibrate-io writes.
type Report struct {
	Disk     Disk
	Result   Result
	Options  Options
	Kernel   string
	Measured time.Time
}

// YAML returns the file. `CostModels` in class files names such files.
func (r Report) YAML() []byte {
	var out bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }

	line("# The cost model of a disk, measured by qos-nri-plugin calibrate-io. Class files name this file in CostModels.")
	line("device:")
	line("  path: %q # or a pattern, for all disks of this model; then remove the serial number", r.Disk.Path)
	if r.Disk.Model != "" {
		line("  model: %q", r.Disk.Model)
	}
	if r.Disk.Serial != "" {
		line("  serial: %q", r.Disk.Serial)
	}
	line("  number: %q", r.Disk.Number())
	line("  size: %d # bytes", r.Disk.Size)

	line("measured:")
	line("  time: %q", r.Measured.UTC().Format(time.RFC3339))
	line("  kernel: %q", r.Kernel)
	line("  duration: %q # of each measurement", r.Options.Duration)
	line("  depth: %d # requests of 4 KiB at a time", r.Options.Depth)
	line("  writes: %s # none, to the disk, or to a file", r.writes())

	line("model: # io.cost.model: bytes a second, and requests of 4 KiB a second")
	for _, key := range iocgroup.CostModelKeys() {
		if value, is := r.Result.Model[key]; is {
			line("  %s: %d # varied by %.0f%%", key, value, 100*r.Result.Spread[key])
		} else {
			line("  # %s: unknown; measure it with --write or --directory", key)
		}
	}
	line("qos: # io.cost.qos: percent, and microseconds")
	for _, key := range iocgroup.CostQoSKeys() {
		if value, is := r.Result.QoS[key]; is {
			line("  %s: %d", key, value)
		} else {
			line("  # %s: unknown; measure it with --write or --directory", key)
		}
	}
	return out.Bytes()
}

func (r Report) writes() string {
	switch {
	case r.Options.Directory != "":
		return "file"
	case r.Options.Write:
		return "disk"
	}
	return "none"
}
