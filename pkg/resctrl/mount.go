// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
)

// DefaultMountPoint is the conventional mount point of resctrl.
const DefaultMountPoint = "/sys/fs/resctrl"

// Reason is the reason why resctrl cannot be used.
type Reason string

const (
	// NoKernelSupport means that the CPU has resources that resctrl controls, but the kernel has no resctrl.
	NoKernelSupport Reason = "NoKernelSupport"
	// NoCPUSupport means that the CPU has no resources that resctrl controls, or that a hypervisor hides them.
	NoCPUSupport Reason = "NoCPUSupport"
	// NotMounted means that resctrl is not mounted.
	NotMounted Reason = "NotMounted"
	// WrongMountOptions means that the machine does not support the wanted mount options.
	WrongMountOptions Reason = "WrongMountOptions"
	// ReadOnly means that resctrl is mounted read-only.
	ReadOnly Reason = "ReadOnly"
)

// Unavailable is the error for a machine whose resctrl cannot be used. Err has the text with the remedy, and the errno of a
// failed mount(2).
type Unavailable struct {
	Reason Reason
	Err    error
}

func (u *Unavailable) Error() string { return u.Err.Error() }

func (u *Unavailable) Unwrap() error { return u.Err }

func unavailable(reason Reason, format string, args ...any) error {
	return &Unavailable{reason, fmt.Errorf(format, args...)}
}

// findMount looks for resctrl at its default mount point, then at the mount points in mountinfo. The kernel has only
// one instance of resctrl, so the options of any of its mounts apply to all of its mounts. If mountinfo cannot be read to its
// end, findMount uses the mounts that it has read.
func findMount(host FS) (Tree, bool) {
	var mounts []mountinfo.Mount
	for _, file := range []string{"/proc/self/mountinfo", mountinfo.File(1)} {
		_ = mountinfo.Read(host, file, mountinfo.NodeLimit, func(m mountinfo.Mount) {
			if m.Type == "resctrl" {
				mounts = append(mounts, m)
			}
		})
	}

	points := []string{DefaultMountPoint}
	for _, mount := range mounts {
		points = append(points, mount.Point)
	}
	for _, point := range points {
		if t := (Tree{host: host, point: point}); t.Exists(Root) {
			t.options = optionsOf(mounts, point)
			return t, true
		}
	}
	return Tree{}, false
}

// optionsOf returns the mount options and the filesystem options of a mount point, as /proc/mounts shows them. It returns nil
// if no mount is known.
func optionsOf(mounts []mountinfo.Mount, point string) []string {
	var options []string
	for _, mount := range mounts {
		if options == nil || mount.Point == point {
			options = strings.Split(mount.Options, ",")
			ofMount := func(option string) bool { return slices.Contains(options, option) }
			options = append(options, slices.DeleteFunc(strings.Split(mount.SuperOptions, ","), ofMount)...)
		}
	}
	return options
}

// Find returns the mounted resctrl. If there is none, the error is an *Unavailable that says whether it can be mounted.
func Find(host FS) (Tree, error) {
	if t, ok := findMount(host); ok {
		return t, nil
	}

	filesystems, err := host.ReadFile("/proc/filesystems")
	switch {
	case err != nil || slices.Contains(strings.Fields(string(filesystems)), "resctrl"):
		return Tree{}, unavailable(NotMounted, "resctrl is not mounted; run: mount -t resctrl resctrl %s", DefaultMountPoint)
	case cpuSupports(host): // the kernel registers resctrl only on CPUs that support it
		return Tree{}, unavailable(NoKernelSupport,
			"the CPU has RDT, but the kernel has no resctrl filesystem; "+
				"boot a kernel with CONFIG_X86_CPU_RESCTRL, and without an rdt= option that disables all RDT features")
	}
	return Tree{}, unavailable(NoCPUSupport, "the CPU has no RDT (cat_l3, cat_l2 or mba in /proc/cpuinfo), or a hypervisor hides it")
}

var rdtFlag = regexp.MustCompile(`(?m)^flags\s*:.* (cat_l2|cat_l3|mba)( |$)`)

// cpuSupports reports whether /proc/cpuinfo has the flag of a resource that resctrl controls.
func cpuSupports(host FS) bool {
	data, err := host.ReadFile("/proc/cpuinfo")
	return err == nil && rdtFlag.Match(data)
}

// Writable returns an *Unavailable if resctrl is mounted read-only.
func (t Tree) Writable() error {
	if slices.Contains(t.options, "ro") {
		return unavailable(ReadOnly, "resctrl is mounted read-only at %[1]s; run: mount -o remount,rw %[1]s", t.point)
	}
	return nil
}

// Mount mounts resctrl at DefaultMountPoint, with mount options like "cdp,mba_MBps". The error is an *Unavailable.
func Mount(host FS, options string) error {
	err := host.Mount("resctrl", DefaultMountPoint, "resctrl", options)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENODEV):
		return unavailable(NoCPUSupport, "the CPU has no resource that resctrl controls, or the kernel option rdt= disables all such resources: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return unavailable(NoKernelSupport, "%s does not exist; the CPU has no RDT, or the kernel has no resctrl filesystem: %w", DefaultMountPoint, err)
	case options != "" && (errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)):
		return unavailable(WrongMountOptions, "this machine does not support resctrl mounted with -o %s: %w", options, err)
	}
	return unavailable(NotMounted, "resctrl is not mounted, and mounting it at %s failed: %w", DefaultMountPoint, err)
}
