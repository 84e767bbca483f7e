// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// features returns what a machine can do. The names are those of the table in docs/rdt.md.
func features(info resctrl.Info) []classes.Feature {
	var all []classes.Feature
	add := func(name string, available bool, yes, no string) {
		reason := no
		if available {
			reason = yes
		}
		all = append(all, classes.Feature{Name: name, Available: available, Reason: reason})
	}

	var caches []string
	apart, devices := false, false
	for _, level := range []string{resctrl.L2, resctrl.L3} {
		schemas := info.Schemas(level)
		if len(schemas) == 0 {
			continue
		}
		cache := info.Caches[schemas[0]]
		caches = append(caches, fmt.Sprintf("%s with masks up to %#x", level, cache.Mask))
		apart, devices = apart || len(schemas) > 1, devices || cache.SharesWithDevices
	}
	add("shares of caches", len(caches) > 0, strings.Join(caches, ", "), "the CPU or the kernel cannot divide caches (info/L2, info/L3)")
	add("code and data apart", apart, "resctrl is mounted with cdp or cdpl2", "resctrl is mounted without cdp and cdpl2, or the CPU lacks it")

	limited := resctrl.BandwidthInfo{}
	if info.Bandwidth != nil {
		limited = *info.Bandwidth
	}
	for _, unit := range []struct {
		of   resctrl.BandwidthUnit
		name string
	}{{resctrl.Percent, "per cent"}, {resctrl.EighthGBps, "1/8 GB/s"}, {resctrl.MBps, "MBps"}} {
		no := "the CPU or the kernel cannot limit memory bandwidth (info/MB)"
		if info.Bandwidth != nil {
			no = fmt.Sprintf("this machine has the unit %s", limited.Unit)
		}
		add("bandwidth in "+unit.name, info.Bandwidth != nil && limited.Unit == unit.of,
			fmt.Sprintf("steps of %d, at least %d", limited.Granularity, limited.Min), no)
	}

	add("monitoring of containers", info.RMIDs > 0, fmt.Sprintf("%d RMIDs (info/%s/num_rmids)", info.RMIDs, info.FewestRMIDs),
		"the CPU or the kernel cannot monitor caches (info/L3_MON)")
	add("assignable counters", info.AssignsCounters, "mbm_event", "info/L3_MON/mbm_assign_mode is not mbm_event, or does not exist (AMD, Linux 6.18)")
	add("device traffic", devices, "info/L3/io_alloc", "the CPU or the kernel lacks info/L3/io_alloc (AMD, Linux 6.19)")
	add("energy", slices.Contains(info.Counts, resctrl.CoreEnergy), "core_energy in info/PERF_PKG_MON/mon_features",
		"the CPU or the kernel lacks core_energy in info/PERF_PKG_MON/mon_features (Intel, Linux 7.0)")
	return all
}
