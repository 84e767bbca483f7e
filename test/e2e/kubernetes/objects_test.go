// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

const crd = "../../../deploy/kubernetes/crd.yaml"

// missingCRD checks what the shim reports if the user forgets to apply the CRD. It must be the first case: it applies
// the CRD at its end, and all later cases need the CRD.
func missingCRD(t *testing.T, n *node, p *programs) {
	until(t, "the shim logs that the CRD is missing", func() (bool, string) {
		seen := p.said("deploy/kubernetes/crd.yaml")
		return len(seen) > 0, "nothing of it"
	})
	n.kubectl(t, "apply", "-f", crd)
	if seen := p.said("deploy/kubernetes/crd.yaml"); len(seen) != 1 {
		t.Errorf("the missing CRD was logged %d times, want once: %s", len(seen), strings.Join(seen, "\n"))
	}
	// A running shim checks for the CRD again within a minute. A new shim checks at once.
	p.killShim(t)
	p.back(t)
}

// said returns the lines of the shim's log that contain text.
func (p *programs) said(text string) []string { return linesWith(text, p.shim.log) }

func (d *daemonSet) said(text string) []string {
	return slices.Concat(linesWith(text, "/var/log/pods/qos-system_qos-nri-plugin-*/shim/*.log"),
		linesWith(text, "/var/log/pods/qos-system_qos-publisher-*/publisher/*.log"))
}

func linesWith(text, logs string) []string {
	files, err := filepath.Glob(logs)
	if err != nil {
		return nil
	}

	var lines []string
	for _, file := range files {
		log, err := os.ReadFile(file)
		if err != nil {
			continue // the log was removed with its pod
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, text) {
				lines = append(lines, line)
			}
		}
	}

	return lines
}

// object returns the NodeQOSResources of the node. The result is empty if the API has none.
func (n *node) object() nodeqosv1alpha1.NodeQOSResources {
	var object nodeqosv1alpha1.NodeQOSResources
	output, err := n.try("get", "nodeqosresources", n.name, "-o", "json")
	if err == nil {
		_ = json.Unmarshal([]byte(output), &object)
	}
	return object
}

// class finds a blockio class in the node's object.
func class(object nodeqosv1alpha1.NodeQOSResources, name string) nodeqosv1alpha1.QOSResourceClassInfo {
	for _, r := range object.Status.QOSResources.ContainerQOSResources {
		for _, c := range r.Classes {
			if c.Name == name {
				return c
			}
		}
	}
	return nodeqosv1alpha1.QOSResourceClassInfo{}
}

// holders waits until the object lists the wanted holders of a class.
func (n *node) holders(t *testing.T, name string, want ...string) {
	t.Helper()
	until(t, fmt.Sprintf("%s has the holders %v", name, want), func() (bool, string) {
		c := class(n.object(), name)
		seen := []string{}
		for _, h := range c.Holders {
			seen = append(seen, h.Namespace+"/"+h.Pod+"/"+h.Container)
		}
		return strings.Join(seen, " ") == strings.Join(want, " ") && c.InUse == int64(len(want)), fmt.Sprint(c.InUse, seen)
	})
}

// assignmentsArePublished checks the NodeQOSResources object and the conditions of pods. `follows` is whether the shim
// follows annotations.
func assignmentsArePublished(t *testing.T, n *node, follows bool) {
	n.runPods(t, pod{name: "holder", classes: []string{"blockio.gold"}}, pod{name: "by-default"})
	n.holders(t, "gold", "default/holder/main")
	object := n.object()
	if c := class(object, "gold"); c.Capacity != 2 || c.ExtendedResource != "qos.noderesource.dev/blockio.gold" || c.Description != "for the tests" {
		t.Errorf("gold is %+v; want the capacity, extended resource and description of the class file", c)
	}

	uid := n.kubectl(t, "get", "node", n.name, "-o", "jsonpath={.metadata.uid}")
	if owners := object.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || string(owners[0].UID) != uid {
		t.Errorf("the owners of the object are %+v; want node %s", owners, uid)
	}

	if status := &object.Status; status.LastHeartbeatTime.IsZero() || status.Expired(time.Now()) || status.FollowsAnnotations != follows {
		t.Errorf("last heartbeat at %v, follows annotations: %v, want %v", status.LastHeartbeatTime, status.FollowsAnnotations, follows)
	}

	if table := n.kubectl(t, "get", "nqr"); !strings.Contains(table, "True") {
		t.Errorf("kubectl get nqr prints\n%s\nwant a node that is ready", table)
	}

	n.condition(t, "holder", "True Assigned: main: k8s.io/blockio gold (allocated)")
	n.condition(t, "by-default", "True Assigned: main: k8s.io/blockio standard (default)")
	n.kubectl(t, "delete", "nodeqosresources", n.name)
	n.holders(t, "gold", "default/holder/main") // the shim has created the object again
	classesAreInThePod(t, n, "holder", `{"name":"k8s.io/blockio","class":"gold","source":"allocated"}`)
	n.delete(t, "holder")
	n.holders(t, "gold")
}

// classesAreInThePod checks that "kubectl describe pod" prints the classes of a pod for a user who may only read the pods of the namespace,
// that the user cannot change what it prints, and that the shim writes it again after an administrator has changed it.
func classesAreInThePod(t *testing.T, n *node, name, want string) {
	t.Helper()
	n.kubectl(t, "create", "serviceaccount", "reader")
	n.kubectl(t, "create", "rolebinding", "reader", "--clusterrole=view", "--serviceaccount=default:reader")
	defer n.kubectl(t, "delete", "serviceaccount/reader", "rolebinding/reader")
	described := func() string {
		t.Helper()
		description, err := n.try("--as=system:serviceaccount:default:reader", "describe", "pod", name)
		if err != nil {
			t.Error(description)
		}
		return description
	}

	untilSeen(t, "kubectl describe pod prints the classes", described, "qos.noderesource.dev/classes:", want)
	n.kubectl(t, "annotate", "--overwrite", "pod", name, `qos.noderesource.dev/classes={"forged":true}`)
	until(t, "the shim has written the classes again", func() (bool, string) {
		description := described()
		return strings.Contains(description, want) && !strings.Contains(description, "forged"), description
	})
}

// changedByHand changes classes of running containers with the node API, so that the kubelet does not know of the changes.
func changedByHand(t *testing.T, n *node) {
	n.runPods(t, pod{name: "by-hand"})
	n.offered(t, "gold", "2", "2")
	n.shell(t, "update", "default/by-hand", "main", "blockio=gold")
	n.inClass(t, "by-hand", "gold")
	n.condition(t, "by-hand", "main: k8s.io/blockio gold (update)")
	n.event(t, "by-hand", "QOSClassChanged", "standard -> gold")
	n.offered(t, "gold", "2", "1")
	n.delete(t, "by-hand")
	n.offered(t, "gold", "2", "2")
}

// event waits until a pod has exactly one event with this reason, and its message contains the text.
func (n *node) event(t *testing.T, pod, reason, text string) {
	t.Helper()
	selector := "involvedObject.uid=" + n.of(pod, "{.metadata.uid}") + ",reason=" + reason // earlier pods had the same name
	until(t, "there is an event "+reason+" with "+text, func() (bool, string) {
		output, err := n.try("get", "events", "--field-selector", selector, "-o", "json")
		var list struct {
			Items []struct{ Message, Type string }
		}
		if err == nil {
			err = json.Unmarshal([]byte(output), &list)
		}
		if err != nil {
			return false, err.Error()
		}
		return len(list.Items) == 1 && strings.Contains(list.Items[0].Message, text), fmt.Sprint(list.Items)
	})
}

func refusalsAreReported(t *testing.T, n *node) {
	n.createPods(t, pod{name: "refused", annotations: map[string]string{"qos.noderesource.dev/pod": "blockio=platinum"}})
	n.condition(t, "refused", "False UnknownClass: ")
	n.event(t, "refused", "QOSClassRefused", `class "platinum" of k8s.io/blockio does not exist on this node; available: gold, silver, slow, standard`)
	until(t, "the kubelet has tried again", func() (bool, string) {
		seen := n.shell(t, "assignments", "default/refused", "-o", "json")
		return strings.Contains(seen, `"count":`) && !strings.Contains(seen, `"count": "1"`), seen
	})
	n.event(t, "refused", "QOSClassRefused", "platinum") // still exactly one event
}

// typosAreReported runs pods with misspelled annotations, which no policy refuses, and checks how they are reported.
func typosAreReported(t *testing.T, n *node) {
	const typo = "container.qos.noderesource.dev/mian"
	n.runPods(t, pod{name: "mistyped", annotations: map[string]string{typo: "blockio=gold"}})
	n.condition(t, "mistyped", "False AnnotationIgnored: annotation "+typo+" names no container of the pod; its containers are main; "+
		"in effect: main: k8s.io/blockio standard (default)")
	wantLines(t, n.qos(t, "pods", "mistyped"), "mistyped mian - - - - AnnotationIgnored: annotation "+typo)
	n.kubectl(t, "annotate", "pod", "mistyped", typo+"-")
	n.condition(t, "mistyped", "True Assigned: main: k8s.io/blockio standard (default)")
	n.delete(t, "mistyped")
}

func annotationsAreFollowed(t *testing.T, n *node) {
	n.runPods(t, pod{name: "follows"}, pod{name: "has-silver", classes: []string{"blockio.silver"}})
	same := n.sameContainers(t, "follows")
	n.kubectl(t, "annotate", "pod", "follows", "container.qos.noderesource.dev/main=blockio=gold")
	n.inClass(t, "follows", "gold")
	n.condition(t, "follows", "True Assigned: main: k8s.io/blockio gold")
	n.kubectl(t, "annotate", "--overwrite", "pod", "follows", "container.qos.noderesource.dev/main=blockio=silver")
	n.condition(t, "follows", "False ChangeRefused: ")
	n.event(t, "follows", "QOSChangeRefused", `class "silver" of k8s.io/blockio is full`)
	n.inClass(t, "follows", "gold")
	n.delete(t, "has-silver")
	n.inClass(t, "follows", "silver") // the shim tries the change again
	n.condition(t, "follows", "True Assigned: main: k8s.io/blockio silver")
	same("a change of class")
}

// serverAway stops the API server. While the API server is stopped, the test changes the class of a container. If the
// class file does not come from the API server, the test also changes the capacity of a class. Then it starts the API
// server again.
func serverAway(t *testing.T, n *node, p installation) {
	n.runPods(t, pod{name: "through", classes: []string{"blockio.gold"}})
	n.condition(t, "through", "gold (allocated)")
	same := n.sameContainers(t, "through")
	said := len(p.said("does not answer"))
	n.cluster.server.mustEnd(t, syscall.SIGKILL)
	capacity := 2
	if _, ok := p.(*programs); ok {
		capacity = 3
		n.setGold(t, p, capacity)
	}

	n.shell(t, "update", "default/through", "main", "blockio=slow")
	until(t, "the shim has noticed that the API server is away", func() (bool, string) {
		return len(p.said("does not answer")) > said, "the log of the shim does not report that"
	})

	n.cluster.server.mustStart(t)
	n.awaitServer(t)
	n.offered(t, "gold", fmt.Sprint(capacity), fmt.Sprint(capacity))
	n.condition(t, "through", "slow (update)")
	n.holders(t, "slow", "default/through/main")
	same("the absence of the API server")

	n.setGold(t, p, 2)
	n.offered(t, "gold", "2", "2")
}

// writes returns the writes of the shim to the API so far.
func (n *node) writes(t *testing.T) []string {
	t.Helper()
	return n.writesOf(t, "qos-kubelet-shim")
}

// writesOf returns the writes of a program to the API so far, from the audit log.
func (n *node) writesOf(t *testing.T, program string) (writes []string) {
	t.Helper()
	for entry := range n.audited(t, program) {
		writes = append(writes, strings.TrimSuffix(entry.Verb+" "+entry.ObjectRef.Resource+"/"+entry.ObjectRef.Subresource, "/"))
	}
	return writes
}

// countEach returns how often each text occurs.
func countEach(texts []string) map[string]int {
	counts := map[string]int{}
	for _, text := range texts {
		counts[text]++
	}
	return counts
}

// audited is a write in the audit log.
type audited struct {
	UserAgent, Verb string
	ObjectRef       struct{ Resource, Subresource, Namespace string }
}

// audited returns the writes of a program in the audit log.
func (n *node) audited(t *testing.T, program string) iter.Seq[audited] {
	t.Helper()
	return func(yield func(audited) bool) {
		log, err := os.Open(n.cluster.auditLog())
		must(t, err)
		defer log.Close()
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var entry audited
			if json.Unmarshal(lines.Bytes(), &entry) == nil && strings.HasPrefix(entry.UserAgent, program) && !yield(entry) {
				return
			}
		}
		must(t, lines.Err())
	}
}

// quiet waits until the shim has written nothing to the API for the given duration. It returns the number of all writes
// so far.
func (n *node) quiet(t *testing.T, some time.Duration) int {
	t.Helper()
	last, since := -1, time.Now()
	until(t, "the shim makes no more writes", func() (bool, string) {
		now := n.writes(t)
		if len(now) != last {
			last, since = len(now), time.Now()
		}
		return time.Since(since) > some, fmt.Sprint(len(now), " writes")
	})
	return last
}

// writesAreFew counts the writes of the shim for one change of class, in an idle time, and after a restart of the shim.
func writesAreFew(t *testing.T, n *node, p *programs) {
	n.runPods(t, pod{name: "counted"})
	n.condition(t, "counted", "standard (default)")
	before := n.quiet(t, 7*time.Second)
	n.shell(t, "update", "default/counted", "main", "blockio=slow")
	n.condition(t, "counted", "slow (update)")
	n.holders(t, "slow", "default/counted/main")
	n.event(t, "counted", "QOSClassChanged", "standard -> slow")
	one := n.writes(t)[before:]
	t.Logf("writes for one change of class: %d: %s", len(one), strings.Join(one, ", "))
	count := countEach(one)

	// The shim may write NodeQOSResources twice: on a slow machine, it may see first that the class is in use, and later
	// that the change is complete.
	if count["patch pods/status"] != 1 || count["create events"] != 1 || count["patch nodeqosresources/status"] > 2 || len(one) > 4 {
		t.Errorf("one change of class resulted in the writes %v; want one each of condition, event and object", one)
	}

	quiet := n.quiet(t, 12*time.Second)
	if quiet != before+len(one) {
		t.Errorf("the writes in an idle time are %v, want none", n.writes(t)[before+len(one):])
	}

	// A shim that starts does not repeat writes that the API already has.
	p.killShim(t)
	p.back(t)
	n.offered(t, "slow", "1k", "1k")
	if again := n.quiet(t, 7*time.Second); again != quiet {
		t.Errorf("a restart of the shim resulted in the writes %v, want none", n.writes(t)[quiet:])
	}
}
