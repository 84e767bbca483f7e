// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// podScope is a resource whose classes are of whole pods. It needs cgroup v2.
const podScope = `- name: qos.noderesource.dev/pod-blockio
  scope: pod
  classes: [{name: slow}]
  blockio:
    Classes:
      slow: [{Devices: [/dev/vda], ThrottleReadBps: 300M}]
`

// staying maps classes to pods that changes of the installation must not affect. The pods get their classes by an
// extended resource, by an annotation, and by default. On cgroup v2, runStaying adds a pod with a class of the whole
// pod. Without the plugin, the runtime refuses the containers of the pod by-annotation.
var staying = map[string]pod{
	"gold": {name: "by-resource", classes: []string{"blockio.gold"}},
	"slow": {name: "by-annotation", annotations: map[string]string{
		"container.qos.noderesource.dev/main": "blockio=slow", requiredAnnotation: "[ qos-nri-plugin ]",
	}},
	"standard": {name: "by-default"},
}

// runStaying runs the pods of staying until the test ends.
func (n *node) runStaying(t *testing.T) {
	t.Helper()
	scoped := pod{name: "as-a-whole", annotations: map[string]string{podAnnotation: "qos.noderesource.dev/pod-blockio=slow"}}
	if unified() {
		n.createPods(t, scoped)
		n.condition(t, scoped.name, "pod-blockio slow")
	}
	for class, p := range staying {
		n.runPods(t, p)
		n.inClass(t, p.name, class)
	}
}

// containers returns a line for each pod of the namespace default, with its UID, its phase, and the IDs and restarts of its containers.
func (n *node) containers(t *testing.T) string {
	t.Helper()
	return n.kubectl(t, "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.phase}`+
		`{range .status.containerStatuses[*]} {.containerID} {.restartCount}{end}{"\n"}{end}`)
}

// leftAlone checks that all pods have the containers that they had before, that those of staying have their classes, and that no pod was
// evicted or has failed.
func (n *node) leftAlone(t *testing.T, before string) {
	t.Helper()
	if after := n.containers(t); after != before {
		t.Errorf("the pods were\n%s\nand are now\n%s", before, after)
	}

	for class, p := range staying {
		n.inClass(t, p.name, class)
	}

	if unified() {
		n.condition(t, "as-a-whole", "pod-blockio slow")
	}

	if failed := n.kubectl(t, "get", "pods", "-A", "--field-selector=status.phase=Failed", "-o", "name"); failed != "" {
		t.Errorf("these pods have failed: %s", failed)
	}

	for _, reason := range []string{"Evicted", "Preempted", "TaintManagerEviction", "Killing", "BackOff", "UnexpectedAdmissionError"} {
		events := n.kubectl(t, "get", "events", "--field-selector=reason="+reason, "-o", `jsonpath={range .items[*]}{.involvedObject.uid} {.message}{"\n"}{end}`)
		for event := range strings.Lines(events) {
			if uid, message, _ := strings.Cut(event, " "); strings.Contains(before, uid) {
				t.Errorf("a pod has the event %s: %s", reason, message)
			}
		}
	}
}

// restart has the watches that run while the plugin's pod is replaced.
type restart struct {
	*node
	begin      time.Time
	offer, pod watch
}

// watchRestart starts two watches. The watch offer shows the capacity and the allocatable units of gold in the node's
// status, with the time of the kubelet's report. The watch pod shows when containers of the shim end.
func (n *node) watchRestart(t *testing.T) restart {
	t.Helper()
	const gold = `qos\.noderesource\.dev/blockio\.gold`
	return restart{
		node: n, begin: time.Now(),
		offer: n.watch(t, "offer", "node", n.name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}/{.status.capacity.`+
			gold+`}/{.status.allocatable.`+gold+`}{"\n"}`),
		pod: n.watch(t, "plugin-pods", "pods", "-n", "qos-system", "-l", "app.kubernetes.io/name=qos-nri-plugin", "-o",
			`jsonpath={.status.containerStatuses[?(@.name=="shim")].state.terminated.finishedAt}{"\n"}`),
	}
}

// kubeletPeriod is the interval at which a kubelet writes a changed status by default. The kubelet of the tests is
// faster, but the busy machine delays it.
const kubeletPeriod = 10 * time.Second

// wantShortOutage ends the watches, and checks that the class always had its capacity. It also checks how long the
// class was unavailable: at most the time from the end of the old shim to the registration of the new shim, plus
// kubeletPeriod. Times in the API are whole seconds.
func (r restart) wantShortOutage(t *testing.T, capacity int) {
	t.Helper()
	until(t, "a report has the whole class again", func() (bool, string) {
		reports := r.offer.lines(t)
		last := strings.TrimSpace(reports[len(reports)-1])
		fields := strings.Split(last, "/")
		return len(fields) == 3 && fields[1] == fields[2], last
	})

	ended, registered := r.end(t), r.registration(t)
	took := registered.Sub(ended)
	away, err := unavailable(r.offer.lines(t), capacity)
	must(t, err)
	t.Logf("the shim was away for %v, and the class was unavailable for %v", took, away)
	if limit := took + kubeletPeriod; away > limit {
		t.Errorf("the class was unavailable for %v, want at most %v:\n%s", away, limit, strings.Join(r.offer.lines(t), ""))
	}
}

// end ends the watches, and returns the time at which the old shim ended.
func (r restart) end(t *testing.T) time.Time {
	t.Helper()
	must(t, r.offer.end(syscall.SIGTERM))
	must(t, r.pod.end(syscall.SIGTERM))
	for _, line := range r.pod.lines(t) {
		if ended, err := time.Parse(time.RFC3339, strings.TrimSpace(line)); err == nil && !ended.Before(r.begin.Truncate(time.Second)) {
			return ended
		}
	}
	t.Fatalf("no shim has ended: %q", r.pod.lines(t))
	return time.Time{}
}

// registration returns the time at which the new shim registered gold with the kubelet. The runtime writes the time
// into the shim's log.
func (r restart) registration(t *testing.T) time.Time {
	t.Helper()
	for _, line := range linesWith("blockio.gold", "/var/log/pods/qos-system_qos-nri-plugin-*/shim/*.log") {
		at, _, _ := strings.Cut(line, " ")
		if registered, err := time.Parse(time.RFC3339Nano, at); err == nil && registered.After(r.begin) && strings.Contains(line, "class is published") {
			return registered
		}
	}
	t.Fatal("no new shim has published the class gold")
	return time.Time{}
}

// unavailable returns the time for which a node reported fewer allocatable units of a class than its capacity. A report
// is a line TIME/CAPACITY/ALLOCATABLE. All reports must have at least the given capacity.
func unavailable(reports []string, capacity int) (away time.Duration, err error) {
	var since time.Time
	for _, report := range reports {
		fields := strings.Split(strings.TrimSpace(report), "/")
		at, err := time.Parse(time.RFC3339, fields[0])
		if err != nil {
			return 0, err
		}
		total, _ := strconv.Atoi(fields[1]) // 0 if it is missing
		allocatable, _ := strconv.Atoi(fields[2])
		if total < capacity {
			return 0, fmt.Errorf("the node reports %q, want a capacity of at least %d", report, capacity)
		}

		switch {
		case allocatable < total && since.IsZero():
			since = at
		case allocatable >= total && !since.IsZero():
			away, since = away+at.Sub(since), time.Time{}
		}
	}

	return away, nil
}

// TestAClassIsUnavailableUntilAReportHasItAgain: the node lacks units of the class from second 1 to second 4, and from 6 to 8.
func TestAClassIsUnavailableUntilAReportHasItAgain(t *testing.T) {
	const seconds = "2026-01-01T00:00:0"
	reports := []string{
		seconds + "0Z/2/2\n", seconds + "1Z/2/0\n", seconds + "2Z/2/1\n", seconds + "4Z/3/3\n", seconds + "5Z/3/3\n", seconds + "6Z/2/0\n", seconds + "8Z/2/2\n",
	}
	if away, err := unavailable(reports, 2); err != nil || away != 5*time.Second {
		t.Errorf("the class is unavailable for %v (error %v), want 5 s, the sum of 3 s and 2 s", away, err)
	}
	// A smaller capacity, no numbers, and no time are errors.
	for _, wrong := range []string{seconds + "9Z/1/1\n", seconds + "9Z//\n", "no time"} {
		if _, err := unavailable(append(reports, wrong), 2); err == nil {
			t.Errorf("no error for the report %q", wrong)
		}
	}
}

// watch is a kubectl that writes a line each time when an object changes.
type watch struct{ *process }

// watch runs "kubectl get --watch" until the test ends.
func (n *node) watch(t *testing.T, name string, args ...string) watch {
	t.Helper()
	w := watch{n.process(name, append([]string{n.program("kubectl"), "--kubeconfig=" + n.cluster.kubeconfig("admin"), "get", "--watch"}, args...)...)}
	must(t, os.RemoveAll(w.log))
	w.mustStart(t)
	t.Cleanup(func() { must(t, w.end(syscall.SIGTERM)) })
	until(t, "kubectl watches", func() (bool, string) {
		seen := w.lines(t)
		return len(seen) > 0, fmt.Sprint(args)
	})
	return w
}

func (w watch) lines(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(w.log)
	must(t, err)
	return slices.Collect(strings.Lines(string(data)))
}
