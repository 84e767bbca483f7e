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
	// Arm has MPAM (drivers/resctrl/mpam_resctrl.c).
	Arm Vendor = "arm"
)

// Cache is one cache level.
type Cache struct {
	// Ways is the number of bits in a mask. Shareable has the bits that other hardware uses, too.
	Ways      int
	Shareable uint64
	CLOSIDs   int
	// Size is in bytes.
	Size int
	// MinBits is the minimum number of bits in a mask. AMD has 0. CPUs of AMD and Arm accept masks with gaps.
	MinBits int
	// Domains has the cache IDs if they differ from those of the Spec.
	Domains []int
	// CDP is true if a mount option can separate code and data.
	CDP bool
}

// Bandwidth is memory bandwidth allocation.
type Bandwidth struct {
	CLOSIDs int
	// Min, Granularity and Max apply to every value.
	Min, Granularity, Max int
	// Width is the number of bits of MBW_MAX on Arm. It determines the steps to which the kernel rounds per cent.
	Width int
}

// Spec describes the resctrl of a machine.
type Spec struct {
	Vendor Vendor
	// L2, L3 and MB are nil if the CPU cannot allocate them.
	L2, L3 *Cache
	MB     *Bandwidth
	// Domains has the IDs of caches and of memory bandwidth.
	Domains []int
	RMIDs   int
	// TelemetryRMIDs is the number of RMIDs of telemetry (PERF_PKG_MON). It is 0 if the CPU has none.
	TelemetryRMIDs int
	// IOAlloc is "" if the CPU has no io_alloc, "disabled", or the mask of device traffic in each L3, in hexadecimal.
	IOAlloc string
	// Counters is the number of assignable counters in each L3 (ABMC). It is 0 if each RMID has counters of its own.
	Counters int
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
	// Unknown has additional names that this kernel shows.
	Unknown Unknown
}

// Unknown has names of files and schemas that the simulated kernel shows but does not use.
type Unknown struct {
	// Lines are shown in each file schemata.
	Lines string
	// Files has the content of files by their path below the mount point, e.g. "info/L3_MAX/num_closids".
	Files map[string]string
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

// ArmSpec returns a machine with MPAM whose register MBW_MAX has `width` bits. min_bandwidth and bandwidth_gran have
// the values of get_mba_min and get_mba_granularity in drivers/resctrl/mpam_resctrl.c. The kernel reports that other
// hardware may use all bits of a cache.
func ArmSpec(width int) Spec {
	spec := IntelSpec()
	spec.Vendor, spec.L2 = Arm, nil
	spec.L3 = &Cache{Ways: 16, Shareable: 0xffff, CLOSIDs: 16, Size: 16 << 20, MinBits: 1, Domains: []int{0, 65536}}
	spec.MB = &Bandwidth{CLOSIDs: 16, Min: mpamPercent(0, width), Granularity: (100 + 1<<width - 1) >> width, Max: 100, Width: width}
	spec.RMIDs = 64
	return spec
}
