// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// DefaultMountPoint is where resctrl is mounted by convention, and by us.
const DefaultMountPoint = "/sys/fs/resctrl"

// Reasons of a classes.Unavailable.
const (
	NoKernelSupport   = "NoKernelSupport"
	NoCPUSupport      = "NoCPUSupport"
	NotMounted        = "NotMounted"
	WrongMountOptions = "WrongMountOptions"
	ReadOnly          = "ReadOnly"
)

// Mount is one line of /proc/mounts.
type Mount struct {
	Point, Type string
	Options     []string
}

// ParseMounts reads /proc/mounts (fstab(5)), leaving out lines that are not of its form.
func ParseMounts(data []byte) []Mount {
	var mounts []Mount
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) < 4 {
			continue
		}
		mounts = append(mounts, Mount{
			Point:   unescape(fields[1]),
			Type:    fields[2],
			Options: strings.Split(fields[3], ","),
		})
	}
	return mounts
}

// unescape undoes the octal escapes of /proc/mounts.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}

// resctrlMount is where resctrl is and how.
type resctrlMount struct {
	point   string
	options []string
}

func (m resctrlMount) has(option string) bool { return slices.Contains(m.options, option) }

// findMount looks for resctrl where it usually is, then where the kernel says. The kernel has one instance of it, so that
// the options of any of its mounts are those of all.
func findMount(host FS) (resctrlMount, bool) {
	var mounts []Mount
	for _, file := range []string{"/proc/mounts", "/proc/1/mounts"} {
		data, err := host.ReadFile(file)
		if err != nil {
			continue
		}
		mounts = append(mounts, slices.DeleteFunc(ParseMounts(data), func(m Mount) bool { return m.Type != "resctrl" })...)
	}
	points := []string{DefaultMountPoint}
	for _, mount := range mounts {
		points = append(points, mount.Point)
	}
	for _, point := range points {
		if _, err := host.ReadFile(path.Join(point, "schemata")); err == nil {
			return resctrlMount{point: point, options: optionsOf(mounts, point)}, true
		}
	}
	return resctrlMount{}, false
}

func optionsOf(mounts []Mount, point string) []string {
	var options []string
	for _, mount := range mounts {
		if options == nil || mount.Point == point {
			options = mount.Options
		}
	}
	return options
}

// locate finds resctrl, or says why it is not there.
func locate(host FS) (resctrlMount, error) {
	if mount, ok := findMount(host); ok {
		return mount, nil
	}
	filesystems, err := host.ReadFile("/proc/filesystems")
	switch {
	case err != nil || slices.Contains(strings.Fields(string(filesystems)), "resctrl"):
		return resctrlMount{}, &classes.Unavailable{Reason: NotMounted,
			Message: "resctrl is not mounted; run: mount -t resctrl resctrl " + DefaultMountPoint}
	case cpuSupports(host): // kernels register the filesystem only on CPUs that can use it
		return resctrlMount{}, &classes.Unavailable{Reason: NoKernelSupport,
			Message: "the CPU has RDT, but the kernel no resctrl filesystem; it needs CONFIG_X86_CPU_RESCTRL, and no rdt= that turns all off"}
	}
	return resctrlMount{}, &classes.Unavailable{Reason: NoCPUSupport,
		Message: "the CPU has no RDT (cat_l3, cat_l2 or mba in /proc/cpuinfo), or a hypervisor hides it"}
}

// cpuSupports says whether a flag of /proc/cpuinfo promises something that resctrl controls.
func cpuSupports(host FS) bool {
	data, err := host.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(data) {
		name, flags, _ := strings.Cut(string(line), ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		return slices.ContainsFunc(strings.Fields(flags), func(flag string) bool {
			return flag == "cat_l2" || flag == "cat_l3" || flag == "mba"
		})
	}
	return false
}

// mountFor mounts resctrl with the options that the configuration asks for, as far as the machine has them: code and data
// apart are a refinement, which a configuration can do without.
func mountFor(host FS, config *Config) error {
	attempts := []string{config.mountOptions(true)}
	if fallback := config.mountOptions(false); fallback != attempts[0] {
		attempts = append(attempts, fallback)
	}
	var err error
	for _, options := range attempts {
		if err = host.Mount("resctrl", DefaultMountPoint, "resctrl", options); err == nil {
			return nil
		}
	}
	return mountError(err, attempts[len(attempts)-1])
}

func mountError(err error, options string) error {
	switch {
	case errors.Is(err, syscall.ENODEV):
		return &classes.Unavailable{Reason: NoCPUSupport,
			Message: fmt.Sprintf("the CPU has no resource that resctrl controls, or the kernel was told not to use it (rdt=): %v", err)}
	case errors.Is(err, fs.ErrNotExist):
		return &classes.Unavailable{Reason: NoKernelSupport,
			Message: fmt.Sprintf("there is no %s to mount resctrl at; the CPU has no RDT, or the kernel no resctrl: %v", DefaultMountPoint, err)}
	case options != "" && (errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)):
		return &classes.Unavailable{Reason: WrongMountOptions,
			Message: fmt.Sprintf("the configuration needs resctrl mounted with -o %s, which this machine does not have; "+
				"give memory bandwidth in per cent too: %v", options, err)}
	}
	return &classes.Unavailable{Reason: NotMounted,
		Message: fmt.Sprintf("resctrl is not mounted, and mounting it at %s failed: %v", DefaultMountPoint, err)}
}

// mountOptions that the configuration asks for.
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
