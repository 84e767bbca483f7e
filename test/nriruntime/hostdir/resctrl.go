// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostdir

import (
	"fmt"
	"path/filepath"
	"strconv"
)

const (
	blkio   = "/sys/fs/cgroup/blkio"
	resctrl = "/sys/fs/resctrl"

	// firstPID is below the IDs of the containers' processes. A host with resctrl also has the process 2 (kthreadd),
	// by which the plugin recognizes the PID namespace of the host.
	firstPID = 100
)

// resctrlFiles returns the files of resctrl on a CPU with one L3 cache, which can be monitored and divided.
func (h *Host) resctrlFiles() map[string]string {
	return group("", map[string]string{
		"info/last_cmd_status":                "ok\n",
		"info/L3/num_closids":                 "16\n",
		"info/L3/cbm_mask":                    "fffff\n",
		"info/L3/min_cbm_bits":                "1\n",
		"info/L3/shareable_bits":              "0\n",
		"info/L3_MON/num_rmids":               strconv.Itoa(h.options.RMIDs) + "\n",
		"info/L3_MON/mon_features":            "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
		"info/L3_MON/max_threshold_occupancy": "65536\n",
		"schemata":                            "L3:0=fffff\n",
		"mode":                                "shareable\n",
		"/proc/2/stat":                        stat(2, "kthreadd"),
	})
}

// monitoredFiles returns the files of a monitored container's process and monitoring group. They must exist before the
// plugin makes the group, because mkdir adds files to the new directory only in a real resctrl.
func (h *Host) monitoredFiles(pid int, id string) map[string]string {
	process := "/proc/" + strconv.Itoa(pid)
	return group("mon_groups/qos-"+id, map[string]string{
		process + "/stat":               stat(pid, "server"),
		process + "/cpu_resctrl_groups": "res:/\nmon:qos-" + id + "\n",
	})
}

// group returns the given files (`others`) and the files that every control group and monitoring group has. In `others`, a name
// without a leading slash is relative to the group's directory.
func group(name string, others map[string]string) map[string]string {
	others["tasks"] = ""
	for i, counter := range []string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"} {
		others["mon_data/mon_L3_00/"+counter] = strconv.Itoa(i<<20) + "\n"
	}

	placed := map[string]string{}
	for file, content := range others {
		if !filepath.IsAbs(file) {
			file = filepath.Join(resctrl, name, file)
		}
		placed[file] = content
	}
	return placed
}

func (h *Host) monitoringGroup(id string) string {
	return filepath.Join(h.Root, resctrl, "mon_groups/qos-"+id)
}

// stat returns the content of /proc/PID/stat.
func stat(pid int, name string) string {
	const started = 1000 // clock ticks after the boot
	return fmt.Sprintf("%d (%s) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", pid, name, started)
}
