// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

// weightFile is a cgroup file with weights.
type weightFile string

const (
	// ioWeight is the io controller's own, acted on by iocost.
	ioWeight weightFile = "io.weight"
	// ioBFQWeight is that of the bfq scheduler in cgroup v2, blkioBFQWeight in v1.
	ioBFQWeight    weightFile = "io.bfq.weight"
	blkioBFQWeight weightFile = "blkio.bfq.weight"
	// blkioWeight is that of the cfq scheduler, gone with Linux 5.0.
	blkioWeight weightFile = "blkio.weight"
)

// initialIOWeight is what the kernel gives to a new cgroup (CGROUP_WEIGHT_DFL).
const initialIOWeight = 100

// initial is what the kernel gives to a new cgroup, in the file's units.
func (f weightFile) initial() uint64 {
	if f == blkioWeight {
		return 500 // Documentation/admin-guide/cgroup-v1/blkio-controller.rst
	}
	return initialIOWeight
}

// convert turns one of goresctrl's weights, 10 to 1000, into the file's units. bfq takes them as they are. io.weight, 1 to
// 10000, gets the linear conversion that KEP-2254 defines and that runc and crun do for OCI's blockIO.weight, so that a
// class weighs what it weighs when a runtime applies it.
func (f weightFile) convert(weight uint64) uint64 {
	if f == ioWeight {
		return 1 + (weight-minWeight)*9999/990
	}
	return weight
}

// deviceFile is where the exceptions for devices are written.
func (f weightFile) deviceFile() string {
	if f == blkioBFQWeight || f == blkioWeight {
		return string(f) + "_device"
	}
	return string(f)
}
