// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// DefaultMountPoint is the conventional mount point of resctrl.
const DefaultMountPoint = "/sys/fs/resctrl"

// These are the values that this package gives to the field Reason of classes.Unavailable.
const (
	NoKernelSupport   = "NoKernelSupport"
	NoCPUSupport      = "NoCPUSupport"
	NotMounted        = "NotMounted"
	WrongMountOptions = "WrongMountOptions"
	ReadOnly          = "ReadOnly"
)

func unavailable(reason, format string, args ...any) *classes.Unavailable {
	return &classes.Unavailable{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func isUnavailable(err error, reason string) bool {
	found := (*classes.Unavailable)(nil)
	return errors.As(err, &found) && found.Reason == reason
}

// findMount looks for resctrl at its default mount point, then at the mount points in mountinfo. The kernel has only
// one instance of resctrl, so the options of any of its mounts apply to all of its mounts.
func findMount(host FS) (tree, bool) {
	var mounts []*mountinfo.Info
	for _, file := range []string{"/proc/self/mountinfo", "/proc/1/mountinfo"} {
		data, err := host.ReadFile(file)
		if err != nil {
			continue
		}
		if found, err := mountinfo.GetMountsFromReader(bytes.NewReader(data), mountinfo.FSTypeFilter("resctrl")); err == nil {
			mounts = append(mounts, found...)
		}
	}

	points := []string{DefaultMountPoint}
	for _, mount := range mounts {
		points = append(points, mount.Mountpoint)
	}
	for _, point := range points {
		if t := (tree{host: host, point: point}); t.exists(rootGroup) {
			t.options = optionsOf(mounts, point)
			return t, true
		}
	}
	return tree{}, false
}

// optionsOf returns the mount options and the filesystem options of a mount point, as /proc/mounts shows them.
func optionsOf(mounts []*mountinfo.Info, point string) []string {
	var options []string
	for _, mount := range mounts {
		if options == nil || mount.Mountpoint == point {
			options = strings.Split(mount.Options, ",")
			ofMount := func(option string) bool { return slices.Contains(options, option) }
			options = append(options, slices.DeleteFunc(strings.Split(mount.VFSOptions, ","), ofMount)...)
		}
	}
	return options
}

// locate returns the mounted resctrl, or an *Unavailable error.
func locate(host FS) (tree, error) {
	if t, ok := findMount(host); ok {
		return t, nil
	}

	filesystems, err := host.ReadFile("/proc/filesystems")
	switch {
	case err != nil || slices.Contains(strings.Fields(string(filesystems)), "resctrl"):
		return tree{}, unavailable(NotMounted, "resctrl is not mounted; run: mount -t resctrl resctrl %s", DefaultMountPoint)
	case cpuSupports(host): // the kernel registers resctrl only on CPUs that support it
		return tree{}, unavailable(NoKernelSupport,
			"the CPU has RDT, but the kernel has no resctrl filesystem; "+
				"boot a kernel with CONFIG_X86_CPU_RESCTRL, and without an rdt= option that disables all RDT features")
	}
	return tree{}, unavailable(NoCPUSupport, "the CPU has no RDT (cat_l3, cat_l2 or mba in /proc/cpuinfo), or a hypervisor hides it")
}

var rdtFlag = regexp.MustCompile(`(?m)^flags\s*:.* (cat_l2|cat_l3|mba)( |$)`)

// cpuSupports reports whether /proc/cpuinfo has the flag of a resource that resctrl controls.
func cpuSupports(host FS) bool {
	data, err := host.ReadFile("/proc/cpuinfo")
	return err == nil && rdtFlag.Match(data)
}

// mountFor mounts resctrl with the mount options of the configuration. If that fails, it tries again without the
// options that separate code and data, because every configuration also has unified shares.
func mountFor(host FS, config *Config) error {
	options := config.mountOptions(true)
	err := host.Mount("resctrl", DefaultMountPoint, "resctrl", options)
	if fallback := config.mountOptions(false); err != nil && fallback != options {
		options = fallback
		err = host.Mount("resctrl", DefaultMountPoint, "resctrl", options)
	}

	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENODEV):
		return unavailable(NoCPUSupport, "the CPU has no resource that resctrl controls, or the kernel option rdt= disables all such resources: %v", err)
	case errors.Is(err, fs.ErrNotExist):
		return unavailable(NoKernelSupport, "%s does not exist; the CPU has no RDT, or the kernel has no resctrl filesystem: %v", DefaultMountPoint, err)
	case options != "" && (errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)):
		return unavailable(WrongMountOptions, "the configuration needs resctrl mounted with -o %s, which this machine does not support; "+
			"also give memory bandwidth in per cent: %v", options, err)
	}
	return unavailable(NotMounted, "resctrl is not mounted, and mounting it at %s failed: %v", DefaultMountPoint, err)
}

// mountOptions returns the mount options that the configuration asks for.
func (c *Config) mountOptions(codeAndData bool) string {
	var options []string
	if codeAndData && c.wantsCodeAndData(L3) {
		options = append(options, "cdp")
	}
	if codeAndData && c.wantsCodeAndData(L2) {
		options = append(options, "cdpl2")
	}
	if c.onlyMBps() {
		options = append(options, "mba_MBps")
	}
	return strings.Join(options, ",")
}
