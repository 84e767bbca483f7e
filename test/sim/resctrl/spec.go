// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

// MountPoint is the mount point of the simulated resctrl.
const MountPoint = "/sys/fs/resctrl"

// Vendor determines the unit of memory bandwidth and the legal masks.
type Vendor string

// These are the vendors of CPUs with resctrl.
const (
	Intel Vendor = "intel"
	AMD   Vendor = "amd"
)

// Cache is one cache level.
type Cache struct {
	// Ways is the number of bits in a mask. Shareable has the bits that other hardware uses, too.
	Ways      int
	Shareable uint64
	CLOSIDs   int
	// Size is in bytes.
	Size int
	// MinBits is the minimum number of bits in a mask. AMD has 0, and accepts masks with gaps.
	MinBits int
	// CDP is true if a mount option can separate code and data.
	CDP bool
}

// Bandwidth is memory bandwidth allocation.
type Bandwidth struct {
	CLOSIDs int
	// Min, Granularity and Max apply to every value.
	Min, Granularity, Max int
}

// Spec describes the resctrl of a machine.
type Spec struct {
	Vendor Vendor
	// L2, L3 and MB are nil if the CPU cannot allocate them.
	L2, L3 *Cache
	MB     *Bandwidth
	// Domains has the cache IDs. L2 and L3 have the same IDs here.
	Domains []int
	RMIDs   int
	// If Limbo is true, the RMIDs of removed groups cannot be used again until FS.Drain is called.
	Limbo bool
	// CPUs is the number of CPUs, which are numbered from 0.
	CPUs int
	// NoKernel simulates a kernel without resctrl.
	NoKernel bool
	// NoTaskFile simulates a kernel without CONFIG_PROC_CPU_RESCTRL.
	NoTaskFile bool
	// NoSparseFile simulates a kernel before 6.7, which has no info/*/sparse_masks.
	NoSparseFile bool
	// If Unmounted is true, resctrl is not mounted at first.
	Unmounted bool
	// Options has the mount options, e.g. "cdp,mba_MBps". ReadOnly makes the mount read-only.
	Options  string
	ReadOnly bool
}

// IntelSpec returns a machine with L2 allocation, L3 allocation with CDP, and bandwidth in per cent.
func IntelSpec() Spec {
	return Spec{
		Vendor:  Intel,
		L3:      &Cache{Ways: 12, Shareable: 0xc00, CLOSIDs: 16, Size: 16 << 20, MinBits: 1, CDP: true},
		L2:      &Cache{Ways: 20, CLOSIDs: 8, Size: 4 << 20, MinBits: 1},
		MB:      &Bandwidth{CLOSIDs: 8, Min: 10, Granularity: 10, Max: 100},
		Domains: []int{0, 1},
		RMIDs:   32,
		CPUs:    2,
	}
}

// AMDSpec returns a machine with masks that may have gaps, and bandwidth in units of 1/8 GB/s.
func AMDSpec() Spec {
	spec := IntelSpec()
	spec.Vendor = AMD
	spec.L2.MinBits, spec.L3.MinBits, spec.L2.Size = 0, 0, 512<<10
	spec.MB = &Bandwidth{CLOSIDs: 16, Min: 0, Granularity: 1, Max: 2048}
	return spec
}
