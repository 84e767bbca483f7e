// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"path"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// Identity identifies a disk over restarts of the machine. A field is empty if the disk does not report it.
type Identity struct{ Model, Serial string }

// maxIdentity is the maximum length of the texts of an Identity. The texts of the kernel are shorter.
const maxIdentity = 256

// Identify reads the identity of the disk with this name in /sys/block.
func Identify(host iocgroup.FS, name string) Identity {
	first := func(files ...string) string {
		for _, file := range files {
			data, err := host.ReadFile(path.Join("/sys/block", name, file))
			if text := strings.Join(strings.Fields(string(data)), " "); err == nil && text != "" {
				return printable.Text(text, maxIdentity)
			}
		}
		return ""
	}
	// These are the files of NVMe and SCSI, of virtio, and of disks that report only a World Wide Name.
	return Identity{Model: first("device/model"), Serial: first("device/serial", "serial", "wwid", "device/wwid")}
}

// Covers reports whether `other` has each field that `i` has.
func (i Identity) Covers(other Identity) bool {
	return (i.Model == "" || i.Model == other.Model) && (i.Serial == "" || i.Serial == other.Serial)
}

func (i Identity) String() string {
	var parts []string
	if i.Model != "" {
		parts = append(parts, "model "+i.Model)
	}
	if i.Serial != "" {
		parts = append(parts, "serial number "+i.Serial)
	}
	return strings.Join(parts, ", ")
}
