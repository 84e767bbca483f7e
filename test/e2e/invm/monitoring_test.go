// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// monitored compares the reported usage of a container with the counters of its monitoring group. Meanwhile the class
// of the container changes, the plugin and the runtime restart, and another program removes the group. The case uses
// two RMIDs. The kernel does not use these RMIDs again, because the emulated CPU invents the occupancy of removed
// groups, and this occupancy never falls.
func monitored(t *testing.T, p *pod) {
	n := p.node
	monitor(t, n, "gold, silver")
	c, err := p.create(t, spec{name: "main", args: []string{"show", "/proc/self/cpu_resctrl_groups"}})
	must(t, err)
	c.start(t)
	// On a busy host, the container may start without its monitoring group, because the plugin's hook waits only 0.2 s for
	// the group.
	if got, want := c.printed(t), "res:qos-gold\nmon:qos-"+c.id; got != want && got != "res:qos-gold\nmon:" {
		t.Errorf("groups at the first instruction: %q, want %q", got, want)
	}

	m := &meter{container: c, name: "main"}
	m.await(t, "gold", "the container is measured")

	p.update(t, "main", "rdt=silver")
	m.await(t, "silver", "the container is measured in its new class")
	if text := mustRead(t, filepath.Join(m.group("silver"), "tasks")); strings.TrimSpace(text) == "" {
		t.Error("the change of class has emptied the monitoring group")
	}

	c.exec(t, "await", "/proc/self/cpu_resctrl_groups", "res:qos-silver")
	n.restartPlugin(t)
	m.counted = 0 // the counters of a new process begin at 0
	m.await(t, "silver", "the container is measured after a restart of the plugin")
	if n.amd { // one machine is enough
		n.stopRuntime(t)
		n.startRuntime(t)
		n.waitRegistered(t)
		m.await(t, "silver", "the container is measured after a restart of the runtime")
	}

	m.lost, err = counterIn(m.group("silver"), "1", "mbm_total_bytes")
	must(t, err)
	must(t, os.Remove(m.group("silver")))
	m.await(t, "silver", "the container is measured again after another program has removed its group")
	c.remove(t)
	eventually(t, "the monitoring group of the container is gone", func() error { return gone(m.group("silver")) })
}

// monitor makes the plugin monitor the containers of some classes until the test ends.
func monitor(t *testing.T, n *node, classes string) {
	t.Helper()
	useClassFile(t, strings.Replace(classFile, "  rdt:\n", "  rdt:\n    monitoring: {containers: ["+classes+"]}\n", 1))
	n.reread(t)
	n.awaitMonitoring(t, "containers monitored")
}

// awaitMonitoring waits until "qos-nri-plugin status" reports a text about the monitored containers.
func (n *node) awaitMonitoring(t testing.TB, want string) {
	t.Helper()
	eventually(t, "the status reports the monitored containers", func() error {
		printed, err := output("qos-nri-plugin", "status")
		if err == nil && !strings.Contains(printed, want) {
			err = fmt.Errorf("no %q in\n%s", want, printed)
		}
		return err
	})
}

// meter compares what the metrics report for a monitored container with the counters of its monitoring group.
type meter struct {
	*container
	name string
	// counted is the last value of the bandwidth counter. Later values must not be lower.
	counted float64
	// lost is the last value of the bandwidth counter in the container's removed group.
	lost float64
}

// group returns the directory of the container's monitoring group in a class.
func (m *meter) group(class string) string {
	return filepath.Join(resctrlRoot, groupOf(class), "mon_groups", "qos-"+m.id)
}

// await waits until the metrics report the counters of the container, with its class.
func (m *meter) await(t *testing.T, class, what string) {
	t.Helper()
	eventually(t, what, func() error { return m.compare(t, class) })
}

// compare reads the metrics before the counters, because the counters of bandwidth grow all the time.
func (m *meter) compare(t *testing.T, class string) error {
	t.Helper()
	page := metrics(t)
	labels := fmt.Sprintf("class=%q,container=%q,namespace=%q,pod=%q", class, m.name, m.pod.config.Metadata.Namespace, m.pod.config.Metadata.Name)
	occupied, err := valueAfter(page, `container_llc_occupancy_bytes{cache_id="0",`+labels+"} ")
	transferred, errTotal := valueAfter(page, `container_memory_bandwidth_bytes_total{cache_id="1",`+labels+"} ")
	if err := errors.Join(err, errTotal); err != nil {
		return err
	}

	occupancy, err := counterIn(m.group(class), "0", "llc_occupancy")
	bandwidth, errTotal := counterIn(m.group(class), "1", "mbm_total_bytes")
	if err := errors.Join(err, errTotal); err != nil {
		return err
	}

	if occupied != occupancy || occupied == 0 || transferred == 0 || transferred > m.lost+bandwidth {
		return fmt.Errorf("reported %v bytes of the cache and %v bytes of bandwidth, but the kernel counts %v and %v",
			occupied, transferred, occupancy, m.lost+bandwidth)
	}

	if transferred < m.counted {
		t.Errorf("the bandwidth counter has decreased from %v to %v", m.counted, transferred)
	}

	m.counted = transferred
	return m.inGroup(groupOf(class))
}

// counterIn reads a counter of a resctrl group.
func counterIn(group, cache, name string) (float64, error) {
	text, err := os.ReadFile(filepath.Join(group, "mon_data/mon_L3_0"+cache, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
}

// valueAfter returns the number that follows the first occurrence of a key in a text.
func valueAfter(text, key string) (float64, error) {
	_, rest, found := strings.Cut(text, key)
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("no %q", key)
	}
	return strconv.ParseFloat(fields[0], 64)
}

// shortOfRMIDs: the class files have no RDT classes, and enable the monitoring of containers without a class. While other
// programs use all RMIDs, and while the RMIDs of their removed groups are not free yet, a new container runs and is not
// monitored. The pod is a new one, because a pod that had a class keeps the group of the removed class.
func shortOfRMIDs(t *testing.T, n *node) {
	p := n.runPod(t, "short", nil)
	p.run(t, spec{name: "resident"})
	initial := reuseRMIDs(t, anyOccupancy)
	before, _, _ := strings.Cut(classFile, "- name: k8s.io/rdt")
	_, after, _ := strings.Cut(classFile, "- name: k8s.io/blockio")
	useClassFile(t, before+"- name: k8s.io/rdt\n  rdt: {monitoring: {containers: [system/default]}}\n- name: k8s.io/blockio"+after)
	n.reread(t)
	n.awaitMonitoring(t, "containers monitored: 1")
	eventually(t, "the groups of the classes are gone", func() error {
		return errors.Join(emptyAndGone("qos-gold"), emptyAndGone("qos-silver"), emptyAndGone("qos-bronze"))
	})

	theirs := takeRMIDs(t)
	reuseRMIDs(t, initial)
	c := p.run(t, spec{name: "side"})
	const reason = "containers monitored: 1 (system/default: 1 of 2); not monitored: 1 (%s: 1); of the 32 RMIDs of this machine, 8 are reserved for classes, " +
		"and other programs use %d"
	n.awaitMonitoring(t, fmt.Sprintf(reason, "all RMIDs for containers are in use", len(theirs)+1)) // makeForeignGroups has made one more

	for _, group := range theirs {
		must(t, os.Remove(group))
	}

	if err := os.Mkdir(theirs[0], 0o755); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a new monitoring group: %v, want EBUSY", err)
	}

	n.reread(t)
	n.awaitMonitoring(t, fmt.Sprintf(reason, "the RMIDs of removed groups are not free yet", 1))

	reuseRMIDs(t, anyOccupancy)
	eventually(t, "an RMID is free", func() error { return errors.Join(os.Mkdir(theirs[0], 0o755), os.Remove(theirs[0])) })
	n.reread(t)
	(&meter{container: c, name: "side"}).await(t, "", "the container that has waited is measured")
	reuseRMIDs(t, initial)

	writeClassFile(t, classFile)
	n.reread(t)
	eventually(t, "the classes exist again", func() error { return c.inGroup("qos-bronze") })
}

// anyOccupancy is above the occupancy that the emulated CPU shows for any RMID; see raiseOccupancyThreshold.
const anyOccupancy = "67108864"

// reuseRMIDs sets the occupancy below which the kernel uses the RMID of a removed group again, and returns the former
// value. On the emulated CPU, the occupancy of a removed group is never below the default.
func reuseRMIDs(t testing.TB, below string) (before string) {
	t.Helper()
	const file = resctrlRoot + "/info/L3_MON/max_threshold_occupancy"
	before = strings.TrimSpace(mustRead(t, file))
	mustWrite(t, file, below)
	return before
}

// takeRMIDs makes monitoring groups as another program would, until the kernel has no RMID left. It returns the groups.
func takeRMIDs(t testing.TB) (groups []string) {
	t.Helper()
	eventually(t, "all RMIDs are in use", func() error {
		for {
			group := filepath.Join(resctrlRoot, "empty/mon_groups", fmt.Sprint("theirs-", len(groups)))
			switch err := os.Mkdir(group, 0o755); {
			case err == nil:
				groups = append(groups, group)
			case errors.Is(err, syscall.ENOSPC):
				return nil
			default:
				return err // EBUSY, as long as RMIDs of removed groups are not free yet
			}
		}
	})

	return groups
}
