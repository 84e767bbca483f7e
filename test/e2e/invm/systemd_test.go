// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// bySystemd reports whether systemd manages this machine and the cgroups of pods and containers.
func bySystemd() bool {
	_, err := os.Stat("/run/systemd/private")
	return err == nil
}

// podCgroup returns the path that the kubelet gives to the cgroup of a pod.
func podCgroup(uid string) string {
	if bySystemd() {
		return "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	}
	return "/kubepods/pod" + uid
}

// makeSlice makes a pod's slice and enables accounting for it, as the kubelet does.
func makeSlice(t testing.TB, slice string) {
	t.Helper()
	systemctl(t, "start", slice)
	systemctl(t, "set-property", "--runtime", slice, "CPUAccounting=yes", "MemoryAccounting=yes", "IOAccounting=yes", "TasksAccounting=yes")
}

func systemctl(t testing.TB, args ...string) {
	t.Helper()
	_, err := output("systemctl", args...)
	must(t, err)
}

// TestSystemd runs on a machine with systemd. The cgroups of pods and containers are those of the systemd cgroup driver.
func TestSystemd(t *testing.T) {
	must(t, unix.Mount("resctrl", resctrlRoot, "resctrl", 0, "debug")) // with this option, groups have more files, as in newer kernels
	n := startNode(t)
	writeClassFile(t, classFile)
	n.startPlugin(t)
	t.Cleanup(func() { n.plugin.end(t, syscall.SIGTERM) })
	n.foreign = foreignNow(t)
	p := n.runPod(t, "shared", requests())
	for _, c := range []nodeCase{
		{name: "containers and processes exec'd into them are in their groups", test: groups, on: everywhere},
		{name: "the usage of a class includes ended containers whose cgroups are gone", test: containerUsage, on: everywhere},
		{name: "systemd is reloaded while containers run", test: reloadsOfSystemd, on: containerd},
		{name: "another program changes the units of containers and pods", test: changedUnits, on: containerd},
		{name: "classes survive a resize of the container", test: resizes, on: everywhere},
		{name: "restarts of plugin and runtime change no container", test: restarts, on: everywhere},
	} {
		c.run(t, p)
	}
	t.Run("the values of the class are always in the cgroup", func(t *testing.T) { alwaysInClass(t, n) })
	t.Run("an idle pod gets its CPU weight back when it leaves the class", func(t *testing.T) { idlePods(t, n) })
}

// unitFiles returns the files that systemd writes for a unit with I/O accounting, with their contents.
func unitFiles(n *node, cgroup string) map[string]string {
	found := map[string]string{}
	for _, file := range []string{"io.max", "io.weight", "io.bfq.weight"} {
		found[file] = string(readOrNothing(filepath.Join(n.ioCgroup(cgroup), file)))
	}
	return found
}

// reloadsOfSystemd: when systemd reloads its units, e.g. during an upgrade of packages, it resets weights, but neither
// groups nor throttles.
func reloadsOfSystemd(t *testing.T, p *pod) {
	n := p.node
	limited := p.run(t, spec{name: "changed", args: []string{"show", "/sys/fs/cgroup/io.max"}})
	atStart := ioLimits{}
	atStart.add("", limited.printed(t))
	wantLimits(t, atStart, throttled(t))
	weighed := p.run(t, spec{name: "weighed"})
	scope := n.runPod(t, "scope", map[string]string{podKey: podBlockio + "=slow"})
	weights := unitFiles(n, weighed.cgroup())
	for _, verb := range []string{"daemon-reload", "daemon-reexec"} {
		systemctl(t, verb)
		limited.wantGroup(t, "qos-silver")
		wantLimits(t, n.limits(t, limited.cgroup()), throttled(t))
		wantLimits(t, n.limits(t, scope.cgroup()), ioLimits{deviceNumber(t, "/dev/vda"): {"rbps": "3000000"}})
		t.Logf("after %s, the weights are %v", verb, unitFiles(n, weighed.cgroup()))
		n.wantBack(t, weighed.cgroup(), weights)
	}
}

// changedUnits: another program sets properties of the unit of a container or pod. The plugin restores its values, also
// when systemd applies the stored properties again.
func changedUnits(t *testing.T, p *pod) {
	n := p.node
	weighed := p.run(t, spec{name: "weighed"}).cgroup()
	scope := n.runPod(t, "units", map[string]string{podKey: podBlockio + "=slow"}).cgroup()
	before := map[string]map[string]string{weighed: unitFiles(n, weighed), scope: unitFiles(n, scope)}
	systemctl(t, "set-property", "--runtime", path.Base(weighed), "IOWeight=50")
	systemctl(t, "set-property", "--runtime", path.Base(scope), "IOReadBandwidthMax=/dev/vda 5000000")
	for cgroup, files := range before {
		n.wantBack(t, cgroup, files)
	}
	systemctl(t, "daemon-reload")
	for cgroup, files := range before {
		n.wantBack(t, cgroup, files)
	}
}

// wantBack waits until the files of a cgroup have their values again.
func (n *node) wantBack(t testing.TB, cgroup string, want map[string]string) {
	t.Helper()
	began := time.Now()
	eventually(t, cgroup+" has its values again", func() error {
		if diff := cmp.Diff(want, unitFiles(n, cgroup)); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
	t.Logf("the cgroup had its values again after %s", time.Since(began).Round(time.Millisecond))
}
