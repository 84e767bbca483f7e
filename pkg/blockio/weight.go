// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

// weightFile is the name of a cgroup file with weights.
type weightFile string

const (
	// ioWeight has the weights of iocost.
	ioWeight weightFile = "io.weight"
	// ioBFQWeight is the file of the bfq scheduler in cgroup v2, blkioBFQWeight in v1.
	ioBFQWeight    weightFile = "io.bfq.weight"
	blkioBFQWeight weightFile = "blkio.bfq.weight"
	// blkioWeight is the file of the cfq scheduler in v1, removed in Linux 5.0.
	blkioWeight weightFile = "blkio.weight"
)

// initial returns the default weight of a new cgroup, in the file's units.
func (f weightFile) initial() uint64 {
	if f == blkioWeight {
		return 500 // Documentation/admin-guide/cgroup-v1/blkio-controller.rst
	}
	return 100 // CGROUP_WEIGHT_DFL
}

// convert converts a weight of goresctrl, 10 to 1000, to the file's units. bfq has the same units. io.weight, 1 to 10000, gets
// the linear conversion of KEP-2254, which runc and crun use for OCI's blockIO.weight.
func (f weightFile) convert(weight uint64) uint64 {
	if f == ioWeight {
		return 1 + (weight-minWeight)*9999/990
	}
	return weight
}

// deviceFile returns the file to which the weights of devices are written.
func (f weightFile) deviceFile() string {
	if f == blkioBFQWeight || f == blkioWeight {
		return string(f) + "_device"
	}
	return string(f)
}
