// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// knownNames are the names that this package knows in a directory of resctrl.
func knownNames() []string {
	return []string{
		"info", "L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA", "MB", "L3_MON", "last_cmd_status", "mon_groups", "mon_data", "schemata", "tasks",
		"cpus", "cpus_list", "mode", "size",
	}
}

// strange returns a machine with further names: a file for each line of `names`, and the lines of `schemata` that do not begin with a
// known name. All files have the content `text`.
func strange(spec sim.Spec, names, schemata, text string) sim.Spec {
	files := map[string]string{}
	for name := range strings.Lines(names) {
		name = strings.Trim(path.Clean("/"+strings.TrimSpace(name)), "/")
		elements := strings.Split(name, "/")
		if elements[0] == "info" {
			elements = elements[1:]
		}
		// Nothing below a name that this program knows, and no directory that looks like a group.
		if len(elements) == 0 || slices.ContainsFunc(elements, func(name string) bool { return slices.Contains(knownNames(), name) }) {
			continue
		}
		if name != "" && name != "." {
			files[name] = text
		}
	}

	for line := range strings.Lines(schemata) {
		name, _, _ := strings.Cut(line, ":")
		if !slices.Contains(knownNames(), strings.TrimSpace(name)) {
			spec.Unknown.Lines += strings.TrimSuffix(line, "\n") + "\n"
		}
	}
	spec.Unknown.Files = files
	return spec
}

// FuzzNamesThatThisProgramDoesNotKnow compares what Tree reads from a machine and from one with further names in all places.
func FuzzNamesThatThisProgramDoesNotKnow(f *testing.F) {
	f.Add("info/L3_MAX/num_closids\ninfo/MB_HLIM/num_closids\nmba_MBps_event\n", "L3_MAX:1=100;2=100\nMB_HLIM:0=0;1=0\n", "47\n")
	f.Add("info/L3X/cbm_mask\ninfo/NEW_MON/num_rmids\ninfo/kernel_mode\nnew/x\n", "# MB_HW:0=1\nL3_PRIO:0=x\n", "x")
	f.Add("info/MBX/min_bandwidth\nnew/x/y\n", "L3CODEX:0=f\n\n:\n=;\n", "0")
	f.Fuzz(func(t *testing.T, names, schemata, text string) {
		for name, spec := range machines() {
			if spec.Options != "" {
				continue
			}
			fsys := sim.New(strange(spec, names, schemata, text))
			tree, err := Find(fsys)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, groups, err := tree.Read()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}

			want := infoOf(t, spec)
			got.CLOSIDs = max(got.CLOSIDs, want.CLOSIDs) // an unknown resource may have fewer CLOSIDs
			if got.RMIDs < want.RMIDs {                  // and fewer RMIDs
				got.RMIDs, got.FewestRMIDs = want.RMIDs, want.FewestRMIDs
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			if len(groups) != 1 {
				t.Errorf("%s: the groups are %v, want the root group only", name, groups)
			}
		}
	})
}
