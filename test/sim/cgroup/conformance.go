// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Operation is a write and its expected result, on the simulated machine and on a real kernel.
type Operation struct {
	// File is relative to the cgroup, or absolute.
	File string
	// Data may contain the device numbers $DISK, $PARTITION and $OTHER. File may contain the disk's $NAME.
	Data string
	// Errno is 0 when the write succeeds.
	Errno syscall.Errno
	// `Want` is the content of the file afterwards, its lines sorted and joined by "; ".
	Want string
}

// Place is where operations run: a new cgroup with the io controller, and disks. The disks have no limits in any cgroup.
// They use the scheduler "none", and iocost was never set up for them.
type Place struct {
	// Root is the mount point of the hierarchy, Dir the cgroup.
	Root, Dir string
	// Disk, Partition and Other are device numbers, such as "254:0"; Name is the disk's name in /sys/block.
	Disk, Partition, Other, Name string
}

// FS reads and writes files.
type FS interface {
	ReadFile(path string) ([]byte, error)
	WriteFile(path string, data []byte) error
}

// Differences runs the operations in order and describes each result that is not as expected.
func Differences(fs FS, place Place, operations []Operation) []string {
	var differences []string
	for _, operation := range operations {
		if difference := operation.try(fs, place); difference != "" {
			differences = append(differences, difference)
		}
	}
	return differences
}

func (o Operation) try(fs FS, place Place) string {
	names := strings.NewReplacer("$DISK", place.Disk, "$PARTITION", place.Partition, "$OTHER", place.Other, "$NAME", place.Name,
		"$ROOT", place.Root)
	file := names.Replace(o.File)
	if !path.IsAbs(file) {
		file = path.Join(place.Dir, file)
	}

	what := fmt.Sprintf("write %q to %s", names.Replace(o.Data), file)

	var errno syscall.Errno
	if err := fs.WriteFile(file, []byte(names.Replace(o.Data))); err != nil && !errors.As(err, &errno) {
		return fmt.Sprintf("%s: %v, which is not an errno", what, err)
	}

	if errno != o.Errno {
		return fmt.Sprintf("%s: %q (%d), want %q (%d)", what, errno.Error(), int(errno), o.Errno.Error(), int(o.Errno))
	}

	data, err := fs.ReadFile(file)
	if err != nil {
		return fmt.Sprintf("read %s back: %v", file, err)
	}

	if got := sortedLines(string(data)); got != names.Replace(o.Want) {
		return fmt.Sprintf("%s: reads back as %q, want %q", what, got, names.Replace(o.Want))
	}

	return ""
}

// sortedLines sorts the lines of a file, because the kernel lists devices in the order of their first use.
func sortedLines(text string) string {
	all := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
	for i, line := range all {
		all[i] = strings.TrimSpace(line)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

const (
	okay          syscall.Errno = 0
	schedulerFile               = "/sys/block/$NAME/queue/scheduler"
)

// UnifiedOperations returns the operations of cgroup v2.
func UnifiedOperations() []Operation {
	return slices.Concat(ioMaxOperations(), ioLatencyOperations(), ioWeightOperations(), bfqOperations("io.bfq.weight"), cpuOperations())
}

func ioMaxOperations() []Operation {
	const file, initial, two = "io.max", "$DISK rbps=1000000 wbps=max riops=max wiops=max", "$DISK rbps=1000000 wbps=2 riops=max wiops=max"
	const full = "$DISK rbps=100 wbps=200 riops=300 wiops=400"
	const other = "; $OTHER rbps=5000 wbps=max riops=max wiops=max"
	return []Operation{
		{file, "$DISK rbps=1000000", okay, initial},
		{file, "$DISK rbps=0", syscall.ERANGE, initial},
		{file, "$DISK rbps=1", syscall.EINVAL, initial},
		{file, "$DISK riops=1", syscall.EINVAL, initial},
		{file, "$DISK rbps=-5", syscall.EINVAL, initial},
		{file, "$DISK rbps=1M", syscall.EINVAL, initial},
		{file, "$DISK wbps=2", okay, two},
		{file, "$DISK riops=4294967295", okay, two},
		{file, "$DISK riops=4294967294", okay, "$DISK rbps=1000000 wbps=2 riops=4294967294 wiops=max"},
		{file, "$DISK riops=4294967296", okay, two},
		{file, "$DISK rbps=18446744073709551615", okay, "$DISK rbps=max wbps=2 riops=max wiops=max"},
		{file, "$DISK rbps=18446744073709551616", syscall.ERANGE, "$DISK rbps=max wbps=2 riops=max wiops=max"},
		{file, "$DISK rbps=max wbps=max riops=max wiops=max", okay, ""},
		{file, "$DISK rbps=max wbps=max riops=max wiops=max", okay, ""},
		{file, "$DISK rbps=100 wbps=200 riops=300 wiops=400", okay, full},
		{file, "$OTHER rbps=5000\n", okay, full + other},
		{file, "$DISK rbps=7\n$OTHER rbps=8", syscall.EINVAL, full + other},
		{file, "$PARTITION rbps=1000", syscall.ENODEV, full + other},
		{file, "4095:4095 rbps=1000", syscall.ENODEV, full + other},
		{file, "$DISK", syscall.EINVAL, full + other},
		{file, "$DISK ", okay, full + other},
		{file, "", okay, full + other},
		{file, "\n", syscall.EINVAL, full + other},
		{file, "garbage", syscall.EINVAL, full + other},
		{file, "$DISK foo=3", syscall.EINVAL, full + other},
		{file, "$DISK rbps", syscall.EINVAL, full + other},
		{file, "$DISK rbps=", syscall.EINVAL, full + other},
		{file, "  $DISK wbps=4096  ", okay, "$DISK rbps=100 wbps=4096 riops=300 wiops=400" + other},
		{file, "$DISK rbps=12abc", okay, "$DISK rbps=12 wbps=4096 riops=300 wiops=400" + other},
		{file, "$DISK rbps=max wbps=max riops=max wiops=max", okay, other[2:]},
		{file, "$OTHER rbps=max", okay, ""},
	}
}

func ioLatencyOperations() []Operation {
	const file, ten = "io.latency", "$DISK target=10000"
	return []Operation{
		{file, "$DISK target=10000", okay, ten},
		{file, "$DISK target=10ms", okay, "$DISK target=10"},
		{file, "$DISK target=10000\n", okay, ten},
		{file, "$DISK target=", syscall.EINVAL, ten},
		{file, "$DISK target=-1", syscall.EINVAL, ten},
		{file, "$DISK 500", syscall.EINVAL, ten},
		{file, "$DISK target=500 ", syscall.EINVAL, ten},
		{file, "$DISK latency=500", syscall.EINVAL, ten},
		{file, "target=500", syscall.EINVAL, ten},
		{file, "$PARTITION target=500", syscall.ENODEV, ten},
		{file, "4095:4095 target=500", syscall.ENODEV, ten},
		{file, "$OTHER target=500", okay, ten + "; $OTHER target=500"},
		{file, "$OTHER target=max", okay, ten},
		{file, "$DISK target=0", okay, ""},
		{file, "$DISK target=0", okay, ""},
	}
}

func ioWeightOperations() []Operation {
	const file, qos, model = "io.weight", "$ROOT/io.cost.qos", "$ROOT/io.cost.model"
	const six = "rbps=9223372036854775807 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6"
	const own = "rpct=95.00 rlat=5000 wpct=95.50 wlat=10000 min=60.00 max=100.00"
	const tail = " ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00"
	return []Operation{
		{file, "200", okay, "default 200"},
		{file, "default 300", okay, "default 300"},
		{file, "0", syscall.EINVAL, "default 300"},
		{file, "10001", syscall.EINVAL, "default 300"},
		{file, "default max", syscall.EINVAL, "default 300"},
		{file, "garbage", syscall.EINVAL, "default 300"},
		{file, "10000", okay, "default 10000"},
		{file, "$DISK 200", syscall.EOPNOTSUPP, "default 10000"},
		{file, "$DISK default", syscall.EOPNOTSUPP, "default 10000"},
		{file, "$PARTITION 200", syscall.ENODEV, "default 10000"},
		{file, "default 50\n$DISK 300", syscall.EINVAL, "default 10000"},
		{qos, "$DISK enable=1", okay, "$DISK enable=1" + tail},
		{file, "$DISK 200", okay, "$DISK 200; default 10000"},
		{file, "$DISK 0", syscall.EINVAL, "$DISK 200; default 10000"},
		{file, "$DISK 10001", syscall.EINVAL, "$DISK 200; default 10000"},
		{file, "$OTHER 200", syscall.EOPNOTSUPP, "$DISK 200; default 10000"},
		{file, "default 100", okay, "$DISK 200; default 100"},
		{qos, "$DISK enable=0", okay, "$DISK enable=0" + tail},
		{file, "$DISK 300", okay, "$DISK 300; default 100"},
		{file, "$DISK default", okay, "default 100"},
		{model, "$DISK rbps=1000 rseqiops=20 rrandiops=10", okay, "$DISK ctrl=user model=linear rbps=1000 rseqiops=20 rrandiops=10 " +
			"wbps=178075866 wseqiops=42705 wrandiops=378"},
		{model, "$DISK ctrl=auto", okay, "$DISK ctrl=auto model=linear rbps=174019176 rseqiops=41708 rrandiops=370 " +
			"wbps=178075866 wseqiops=42705 wrandiops=378"},
		{model, "$DISK ctrl=user model=linear " + six, okay, "$DISK ctrl=user model=linear " + six},
		{model, "$DISK ctrl=user model=square", syscall.EINVAL, "$DISK ctrl=user model=linear " + six},
		{model, "$DISK rbps=", syscall.EINVAL, "$DISK ctrl=user model=linear " + six},
		{model, "$DISK speed=1", syscall.EINVAL, "$DISK ctrl=user model=linear " + six},
		{model, "$PARTITION rbps=1", syscall.ENODEV, "$DISK ctrl=user model=linear " + six},
		{qos, "$DISK enable=1 ctrl=user " + own, okay, "$DISK enable=1 ctrl=user " + own},
		{qos, "$DISK min=101", syscall.EINVAL, "$DISK enable=1 ctrl=user " + own},
		{qos, "$DISK rpct=101", syscall.EINVAL, "$DISK enable=1 ctrl=user " + own},
		{qos, "$DISK rlat=5ms", syscall.EINVAL, "$DISK enable=1 ctrl=user " + own},
		{qos, "$DISK enable=0 ctrl=auto", okay, "$DISK enable=0" + tail},
		{model, "$DISK ctrl=auto", okay, "$DISK ctrl=auto model=linear rbps=174019176 rseqiops=41708 rrandiops=370 " +
			"wbps=178075866 wseqiops=42705 wrandiops=378"},
	}
}

// bfqOperations are common to io.bfq.weight and v1's blkio.bfq.weight_device.
func bfqOperations(file string) []Operation {
	const none, bfq = "[none] mq-deadline kyber bfq", "none mq-deadline kyber [bfq]"
	return []Operation{
		{file, "200", okay, "default 200"},
		{file, "default 300", okay, "default 300"},
		{file, "0", syscall.ERANGE, "default 300"},
		{file, "1001", syscall.ERANGE, "default 300"},
		{file, "max", syscall.EINVAL, "default 300"},
		{file, "$DISK 200", syscall.EOPNOTSUPP, "default 300"},
		{file, "$PARTITION 200", syscall.ENODEV, "default 300"},
		{schedulerFile, "bfq", okay, bfq},
		{file, "$DISK 200", okay, "$DISK 200; default 300"},
		{file, "$DISK 1001", syscall.ERANGE, "$DISK 200; default 300"},
		{file, "$DISK 0", syscall.ERANGE, "$DISK 200; default 300"},
		{file, "$DISK", syscall.EINVAL, "$DISK 200; default 300"},
		{file, "$OTHER 200", syscall.EOPNOTSUPP, "$DISK 200; default 300"},
		{file, "$DISK default", okay, "default 300"},
		{file, "$DISK 250", okay, "$DISK 250; default 300"},
		{file, "default 150", okay, "default 150"},
		{file, "$DISK 250", okay, "$DISK 250; default 150"},
		{schedulerFile, "none", okay, none},
		{file, "default 100", okay, "default 100"},
	}
}

func cpuOperations() []Operation {
	const weight, idle = "cpu.weight", "cpu.idle"
	return []Operation{
		{weight, "79", okay, "79"},
		{weight, "0", syscall.ERANGE, "79"},
		{weight, "10001", syscall.ERANGE, "79"},
		{weight, "idle", syscall.EINVAL, "79"},
		{idle, "2", syscall.EINVAL, "0"},
		{idle, "-1", syscall.EINVAL, "0"},
		{idle, "0", okay, "0"},
		{weight, "80", okay, "80"},
		{idle, "1", okay, "1"},
		{weight, "80", syscall.EINVAL, "1"},
		{weight, "10001", syscall.ERANGE, "1"},
		{idle, "1", okay, "1"},
		{idle, "0", okay, "0"},
		{weight, "80", okay, "80"},
		{idle, "1", okay, "1"},
		{idle, "0", okay, "0"},
		{weight, "10001", syscall.ERANGE, "100"},
	}
}

// LegacyOperations returns the operations of cgroup v1.
func LegacyOperations() []Operation {
	const bps, iops, weight = "blkio.throttle.read_bps_device", "blkio.throttle.write_iops_device", "blkio.bfq.weight"
	throttles := []Operation{
		{bps, "$DISK 1000000", okay, "$DISK 1000000"},
		{bps, "$OTHER 2000", okay, "$DISK 1000000; $OTHER 2000"},
		{bps, "$OTHER 0", okay, "$DISK 1000000"},
		{bps, "$DISK 1", okay, "$DISK 1"},
		{bps, "$DISK -1", syscall.EINVAL, "$DISK 1"},
		{bps, "$DISK max", syscall.EINVAL, "$DISK 1"},
		{bps, "$DISK", syscall.EINVAL, "$DISK 1"},
		{bps, "$PARTITION 5", syscall.ENODEV, "$DISK 1"},
		{bps, "4095:4095 5", syscall.ENODEV, "$DISK 1"},
		{bps, "$DISK 4294967301", okay, "$DISK 4294967301"},
		{bps, "$DISK 500\n$OTHER 7", okay, "$DISK 500"},
		{bps, "$DISK 18446744073709551615", okay, ""},
		{iops, "$DISK 1000", okay, "$DISK 1000"},
		{iops, "$DISK 4294967295", okay, ""},
		{iops, "$DISK 4294967301", okay, "$DISK 5"},
		{iops, "$DISK 4294967296", okay, "$DISK 0"},
		{iops, "$DISK 0", okay, ""},
		{weight, "10", okay, "10"},
		{weight, "1001", syscall.ERANGE, "10"},
		{weight, "0", syscall.ERANGE, "10"},
		{weight, "default 200", syscall.EINVAL, "10"},
		{weight, "$DISK 300", syscall.EINVAL, "10"},
		{weight, "100", okay, "100"},
	}

	return append(throttles, bfqOperations("blkio.bfq.weight_device")...)
}
