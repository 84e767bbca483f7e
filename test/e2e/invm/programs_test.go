// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checksMachine runs "qos-nri-plugin check" while no plugin runs.
func checksMachine(t *testing.T, n *node) {
	before := standing(t)
	printed, err := output("qos-nri-plugin", "check", "--runtime-endpoint", "unix://"+n.kind.socket, "--nri-socket", nriSocket)
	must(t, err)
	wantLines(t, printed, n.findings(t))

	// The number of groups is only known if resctrl is mounted.
	if mountOf(t) != "" {
		file := filepath.Join(t.TempDir(), "many.yaml")
		mustWrite(t, file, manyClasses(30))
		printed, err = output("qos-nri-plugin", "check", file)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("check of too many classes returned %v, want exit code 1", err)
		}
		want := file + ":4: k8s.io/rdt: 30 classes are 25 too many: the CPU has 8 CLOSIDs, of which resctrl's root group uses 1, " +
			"groups of other programs (empty, theirs) use 2; remove classes, or resctrl groups of other programs: out of CLOSIDs\n"
		if diff := cmp.Diff(want, printed); diff != "" {
			t.Errorf("too many classes (-want +got):\n%s", diff)
		}
	}

	if diff := cmp.Diff(before, standing(t)); diff != "" {
		t.Errorf("check changed something (-before +after):\n%s", diff)
	}
}

// findings returns the beginnings of the lines that "qos-nri-plugin check" prints for the class file of the tests.
func (n *node) findings(t testing.TB) []string {
	t.Helper()
	var lines []string
	if mountOf(t) == "" {
		lines = append(lines, "warning: k8s.io/rdt: ResctrlMounted: NotMounted: resctrl is not mounted yet, so masks, bandwidth and CLOSIDs "+
			"were not checked")
	} else {
		lines = append(lines, "FEATURE OF k8s.io/rdt", "shares of caches ", "code and data apart ", "bandwidth in per cent ", "bandwidth in 1/8 GB/s ",
			"bandwidth in MBps ", "monitoring of containers   yes ", "assignable counters ", "device traffic ", "energy ")
	}

	lines = append(lines,
		"warning: k8s.io/blockio: class weighted is enforced only in part: weight 400 has no effect, because weights are not enabled on any device; "+
			"to enable weights, set the I/O scheduler of the disk to bfq",
		"warning: k8s.io/blockio: WeightsEffective: NoScheduler: weights are not enabled on any device, so they have no effect; "+
			"to enable weights, set the I/O scheduler of the disk to bfq")

	if !n.cgroupV2 {
		lines = append(lines, "warning: "+podBlockio+": unavailable on this machine (NoHierarchyInV1): cgroup v1 does not apply the limits "+
			"of a pod's cgroup")
	}

	lines = append(lines, "1 file, 3 resources, 9 classes: OK")
	runtime, err := n.runtime.Version(requestContext(t), &cri.VersionRequest{})
	must(t, err)
	for _, line := range n.kind.findings {
		lines = append(lines, strings.ReplaceAll(line, "VERSION", runtime.GetRuntimeVersion()))
	}

	return lines
}

// wantLines checks that the printed text has as many lines as there are beginnings, and that each line starts with the beginning at
// the same position.
func wantLines(t testing.TB, printed string, beginnings []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	if !slices.EqualFunc(lines, beginnings, strings.HasPrefix) {
		t.Errorf("lines:\n%s\nwant lines that begin with:\n%s", strings.Join(lines, "\n"), strings.Join(beginnings, "\n"))
	}
}

func manyClasses(n int) string {
	text := "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: k8s.io/rdt\n" +
		"  rdt: {partitions: {p: {l3Allocation: 100%, classes: {"
	for i := range n {
		text += fmt.Sprintf("c%d: {}, ", i)
	}
	return text + "}}}}\n"
}

// realDemo runs the demo on this machine, beside containers that it does not manage.
func realDemo(t *testing.T) {
	before := standing(t)
	printed, err := output("demo", "--real")
	must(t, err)
	for _, part := range []string{
		"the plugin, on this machine.",
		`class "gold" of k8s.io/rdt is full: 2 of 2 in use`,
		"L3:0=000ff;1=000ff",
		deviceNumber(t, "/dev/vda") + " rbps=20000000 wbps=20000000 riops=max wiops=max",
		"default 400",
	} {
		if !strings.Contains(printed, part) {
			t.Errorf("the demo does not show %q:\n%s", part, printed)
		}
	}

	if diff := cmp.Diff(before, standing(t)); diff != "" {
		t.Errorf("the demo has left something behind (-before +after):\n%s", diff)
	}
}

// refusedDemo: the demo does not run on a machine with a plugin, because it would change the plugin's groups.
func refusedDemo(t *testing.T) {
	_, err := output("demo", "--real")
	if want := "/sys/fs/resctrl/qos-bronze is a group of a plugin with classes on this machine"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// standing returns the state that programs must not change: resctrl's content and mount, and the names of cgroups.
func standing(t testing.TB) foreign {
	t.Helper()
	found := readForeign(t)
	found["mount"] = mountOf(t)
	for _, pattern := range []string{resctrlRoot + "/*", "/sys/fs/cgroup/*", "/sys/fs/cgroup/kubepods/*"} {
		names, err := filepath.Glob(pattern)
		must(t, err)
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.IsDir() {
				found[name] = "is there"
			}
		}
	}
	return found
}

// mountOf returns the mount options of resctrl in /proc/mounts, or "" if resctrl is not mounted.
func mountOf(t testing.TB) string {
	t.Helper()
	for _, line := range strings.Split(mustRead(t, "/proc/mounts"), "\n") {
		if fields := strings.Fields(line); len(fields) > 3 && fields[1] == resctrlRoot {
			return fields[3]
		}
	}
	return ""
}

// mountedByPlugin: the plugin has mounted resctrl without options of resctrl, because the class file needs none.
func mountedByPlugin(t *testing.T) {
	if got, want := mountOf(t), "rw,nosuid,nodev,noexec,relatime"; got != want {
		t.Errorf("resctrl is mounted with %q, want %q", got, want)
	}
}
