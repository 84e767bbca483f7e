// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

// weightFile is the name of a cgroup file with weights.
type weightFile string

const (
	// ioWeight has the weights of iocost.
	ioWeight weightFile = "io.weight"
	// ioBFQWeight is the file of the bfq scheduler in cgroup v2, and blkioBFQWeight is its file in v1.
	ioBFQWeight    weightFile = "io.bfq.weight"
	blkioBFQWeight weightFile = "blkio.bfq.weight"
	// blkioWeight is the file of the cfq scheduler in v1. Linux 5.0 removed this scheduler.
	blkioWeight weightFile = "blkio.weight"
)

// initial returns the default weight of a new cgroup, in the file's units.
func (f weightFile) initial() uint64 {
	if f == blkioWeight {
		return 500 // Documentation/admin-guide/cgroup-v1/blkio-controller.rst
	}
	return 100 // CGROUP_WEIGHT_DFL
}

// convert converts a weight of goresctrl, from 10 to 1000, to the file's units. The files of bfq have the same units.
// For io.weight, from 1 to 10000, convert uses the linear conversion of KEP-2254. runc and crun use the same conversion
// for OCI's blockIO.weight.
func (f weightFile) convert(weight uint64) uint64 {
	if f == ioWeight {
		return 1 + (weight-minWeight)*9999/990
	}
	return weight
}

// deviceFile returns the file to which the weights of single devices are written.
func (f weightFile) deviceFile() string {
	if f == blkioBFQWeight || f == blkioWeight {
		return string(f) + "_device"
	}
	return string(f)
}
