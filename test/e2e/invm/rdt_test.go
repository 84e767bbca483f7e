// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// groups: a container is in the group of the class that an annotation of its pod requests, that the container itself has
// been allocated, or else of the default class. Exec'd processes are in the same group.
func groups(t *testing.T, p *pod) {
	n := p.node
	main := p.run(t, spec{name: "main", args: []string{"spawn", "3"}})
	side := p.run(t, spec{name: "side"})
	allocated := p.run(t, spec{name: "allocated", annotations: map[string]string{
		"allocated.qos.noderesource.dev/rdt.silver": "k8s.io/rdt=silver",
	}})

	eventually(t, "the container has its children", func() error {
		if got := len(n.processes(t, main.cgroup())); got != 4 {
			return fmt.Errorf("%d processes, want 4", got)
		}
		return nil
	})

	main.wantGroup(t, "qos-gold")
	side.wantGroup(t, "qos-bronze")
	allocated.wantGroup(t, "qos-silver")
	if got := main.exec(t, "cat", "/proc/self/cpu_resctrl_groups"); !strings.HasPrefix(got, "res:qos-gold\n") {
		t.Errorf("an exec'd process is in group %q, want qos-gold", got)
	}

	if got := side.exec(t, "cat", "/proc/self/cpu_resctrl_groups"); !strings.HasPrefix(got, "res:qos-bronze\n") {
		t.Errorf("a process exec'd into a container of the default class is in group %q, want qos-bronze", got)
	}

	n.wantAssignment(t, p, "main", &qos.Assignment{Name: rdt, Class: "gold", Source: qos.Source_SOURCE_CONTAINER, RequestedBy: keyOf("main")})
	n.wantAssignment(t, p, "side", &qos.Assignment{Name: rdt, Class: "bronze", Source: qos.Source_SOURCE_DEFAULT})
	n.wantAssignment(t, p, "allocated", &qos.Assignment{
		Name: rdt, Class: "silver", Source: qos.Source_SOURCE_ALLOCATED, RequestedBy: "allocated.qos.noderesource.dev/rdt.silver",
	})

	n.wantAssignment(t, p, "side", &qos.Assignment{Name: blockio})
}

// schemata checks each group's lines as the kernel shows them. Both caches have two instances; L3 has 12 ways.
func schemata(t *testing.T, n *node) {
	mb := map[string]string{"gold": "100", "silver": "50", "bronze": "20"}
	if n.amd {
		mb = map[string]string{"gold": "2048", "silver": "1024", "bronze": "409"} // in 2048ths, rounded down
	}

	l3 := map[string]string{"gold": "3f", "silver": "fc0", "bronze": "1c0"}
	for class := range mb {
		want := []string{
			fmt.Sprintf("L3:0=%s;1=%s", l3[class], l3[class]), fmt.Sprintf("MB:0=%s;1=%s", mb[class], mb[class]),
			"L2:0=fffff;1=fffff",
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, schemataLines(t, groupOf(class))); diff != "" {
			t.Errorf("group of class %s (-want +got):\n%s", class, diff)
		}
	}
}

// schemataLines returns the sorted lines of a group's schemata, without the spaces that the kernel adds.
func schemataLines(t testing.TB, group string) []string {
	t.Helper()
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(mustRead(t, filepath.Join(resctrlRoot, group, "schemata"))), "\n") {
		name, values, _ := strings.Cut(strings.TrimSpace(line), ":")
		parts := strings.Split(values, ";")
		for i, part := range parts {
			id, value, _ := strings.Cut(part, "=")
			parts[i] = id + "=" + strings.TrimLeft(strings.TrimSpace(value), "0")
		}
		lines = append(lines, name+":"+strings.Join(parts, ";"))
	}
	slices.Sort(lines)
	return lines
}

// foreign is everything in resctrl that is not the plugin's: file contents by path.
type foreign map[string]string

// makeForeignGroups makes groups as another program would: a group with a process, a monitoring group in this group,
// and an empty group. The process ends at the end of the test.
func makeForeignGroups(t *testing.T) foreign {
	t.Helper()
	for _, group := range []string{"theirs", "theirs/mon_groups/watched", "empty"} {
		must(t, os.Mkdir(filepath.Join(resctrlRoot, group), 0o755))
	}
	writeForeignGroup(t)
	other := start(t, "sleep", "3600")
	t.Cleanup(func() { other.end(t, syscall.SIGKILL) })
	mustWrite(t, filepath.Join(resctrlRoot, "theirs/tasks"), fmt.Sprint(other.cmd.Process.Pid))
	return readForeign(t)
}

// writeForeignGroup sets the values of a foreign group.
func writeForeignGroup(t *testing.T) {
	t.Helper()
	mustWrite(t, filepath.Join(resctrlRoot, "theirs/schemata"), "L3:0=0f0;1=0f0\n")
	mustWrite(t, filepath.Join(resctrlRoot, "theirs/cpus"), "2\n")
}

func readForeign(t testing.TB) foreign {
	t.Helper()
	found := foreign{}
	for _, pattern := range []string{"theirs", "theirs/mon_groups/*", "empty", "."} {
		directories, err := filepath.Glob(filepath.Join(resctrlRoot, pattern))
		must(t, err)
		for _, directory := range directories {
			for _, file := range []string{"schemata", "mode", "cpus", "cpus_list", "size", "tasks"} {
				data, err := os.ReadFile(filepath.Join(directory, file))
				if directory == resctrlRoot && file == "tasks" || os.IsNotExist(err) {
					continue
				}
				must(t, err)
				found[filepath.Join(directory, file)] = string(data)
			}
		}
	}

	return found
}
