// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// holds makes containers of pod p the only holders of the classes of k8s.io/rdt on n1. Each pair names a container, its
// class and, if needed, the source of the class: "main=gold,side=bronze/default".
func (r *rig) holds(t *testing.T, pairs string) {
	t.Helper()
	for _, class := range []string{"gold", "silver", "bronze", "old"} {
		holders := []any{}
		for pair := range strings.SplitSeq(pairs, ",") {
			container, of, _ := strings.Cut(pair, "=")
			if of, source, _ := strings.Cut(of, "/"); of == class {
				holders = append(holders, map[string]any{"namespace": "default", "pod": "p", "container": container, "source": source})
			}
		}
		r.updateRDT(t, class, func(of map[string]any) { of["holders"] = holders })
	}
}

// addFixed adds the resource vendor.example/fixed to n1. Its only class is "a", and running containers cannot change it.
func (r *rig) addFixed(t *testing.T) {
	t.Helper()
	r.updateStatus(t, "n1", func(status map[string]any) {
		resources := status["qosResources"].(map[string]any)
		resources["containerQOSResources"] = append(resources["containerQOSResources"].([]any),
			map[string]any{"name": "vendor.example/fixed", "mutable": false, "classes": []any{map[string]any{"name": "a", "inUse": int64(0)}}})
	})
}

// setForeign makes n1 report what another program has set for the container main of the pod p.
func (r *rig) setForeign(t *testing.T, setting string) {
	t.Helper()
	r.updateResource(t, "n1", "containerQOSResources", func(resource map[string]any) {
		resource["foreign"] = []any{map[string]any{"namespace": "default", "pod": "p", "container": "main", "setting": setting}}
	})
}

// refuses makes n1 report the refusal of a request of pod p. The container is empty for the pod itself.
func (r *rig) refuses(t *testing.T, container, reason, message string) {
	t.Helper()
	r.updateStatus(t, "n1", func(status map[string]any) {
		refusals, _ := status["refusals"].([]any)
		status["refusals"] = append(refusals, map[string]any{
			"namespace": "default", "pod": "p", "podUID": "uid-p", "container": container, "reason": reason, "message": message,
		})
	})
}

func (r *rig) updateRDT(t *testing.T, class string, change func(of map[string]any)) {
	t.Helper()
	r.updateResource(t, "n1", "containerQOSResources", func(resource map[string]any) {
		for _, of := range resource["classes"].([]any) {
			if of := of.(map[string]any); of["name"] == class {
				change(of)
			}
		}
	})
}

// bare returns the rows of a table without the header. It separates the columns by " | ", so that test cases can
// contain the rows.
func bare(out string) string {
	_, rows, _ := strings.Cut(out, "\n")
	return regexp.MustCompile(` {2,}`).ReplaceAllString(strings.TrimSuffix(rows, "\n"), " | ")
}

const (
	gold   = "qos.noderesource.dev/rdt.gold"
	podKey = "qos.noderesource.dev/pod"
)

func TestPodsShowRequestedAndEffectiveClassesAndTheReason(t *testing.T) {
	for _, c := range []struct {
		name  string
		pod   testPod
		holds string // the classes of containers
		node  func(t *testing.T, r *rig)
		want  string
	}{
		{"class by the annotation of the container", aPod("p").on("n1").asks("rdt=gold").running(), "main=gold", nil,
			"p | main | k8s.io/rdt | gold | gold | container"},
		{"class by limits", aPod("p").on("n1").limited(gold).running(), "main=gold", nil,
			"p | main | k8s.io/rdt | gold | gold | allocated"},
		{"class by a claim", aPod("p").on("n1").claims("c").running(), "main=gold/allocated", nil,
			"p | main | k8s.io/rdt | gold | gold | allocated"},
		{"default class, with a claim for something else", aPod("p").on("n1").claims("gpu").running(), "main=bronze/default", nil,
			"p | main | k8s.io/rdt | - | bronze | default"},
		{"class by the annotation of the pod", aPod("p").on("n1").annotated(podKey, "rdt=gold").running(), "main=gold", nil,
			"p | main | k8s.io/rdt | gold | gold | pod"},
		{"class by the annotation of the KEP", aPod("p").on("n1").annotated("rdt.resources.kubernetes.io/container.main", "gold").running(), "main=gold", nil,
			"p | main | k8s.io/rdt | gold | gold | container"},
		{"default class, without a request", aPod("p").on("n1").running(), "main=bronze", nil,
			"p | main | k8s.io/rdt | - | bronze | default"},
		{"class by a rule of the node", aPod("p").on("n1").running(), "main=silver/rule web", nil,
			"p | main | k8s.io/rdt | - | silver | rule web"},
		{"system default by a rule of the node", aPod("p").on("n1").running().
			reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt system default (rule exempt)", "12:40:00"), "", nil,
			"p | main | k8s.io/rdt | - | <system default> | rule exempt"},
		{"system default by the runtime handler", aPod("p").on("n1").running().
			reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt system default (runtime-handler)", "12:40:00"), "", nil,
			"p | main | k8s.io/rdt | - | <system default> | runtime-handler"},
		{"the system default", aPod("p").on("n1").asks("rdt=").running(), "", nil,
			"p | main | k8s.io/rdt | <system default> | <system default> | container"},
		{"the group of another program instead of the system default", aPod("p").on("n1").asks("rdt=").running(), "", func(t *testing.T, r *rig) {
			r.setForeign(t, "resctrl group batch")
		}, "p | main | k8s.io/rdt | <system default> | <resctrl group batch> | container"},
		{"not all groups of other programs are named", aPod("p").on("n1").asks("rdt=").running(), "", func(t *testing.T, r *rig) {
			r.updateResource(t, "n1", "containerQOSResources", func(resource map[string]any) { resource["foreignOmitted"] = int64(3) })
		}, `p | main | k8s.io/rdt | <system default> | unknown | container | NotReported: the container or pod has just started, or its node does not list all containers and pods that have classes; see "qos-nri-plugin assignments" on the node`},
		{"a draining class stays in effect", aPod("p").on("n1").asks("rdt=old").running(), "main=old", nil,
			"p | main | k8s.io/rdt | old | old | container | Draining: the class was removed from the class files of the node; the pod keeps the class until the pod ends, " +
				"and a pod that replaces it cannot get the class on this node; change the request, or add the class again"},

		{"no node has room", aPod("p").limited(gold).unschedulable("0/1 nodes are available: 1 Insufficient " + gold + "."), "", nil,
			"p | main | k8s.io/rdt | gold | - | allocated | Unschedulable: 0/1 nodes are available: 1 Insufficient " + gold + "."},
		{"no node has the class", aPod("p").limited("qos.noderesource.dev/rdt.platin").unschedulable("…"), "", nil,
			`p | main | k8s.io/rdt | platin | - | - | UnknownClass: class "platin" of k8s.io/rdt does not exist on any node; available: gold, silver, bronze, old`},
		{"a misspelled class", aPod("p").limited("qos.noderesource.dev/rdt.slver").unschedulable("…"), "", nil,
			`p | main | k8s.io/rdt | slver | - | - | UnknownClass: class "slver" of k8s.io/rdt does not exist on any node; available: gold, silver, bronze, old (did you mean silver?)`},
		{"the pod is not scheduled yet", aPod("p").asks("rdt=gold"), "", nil,
			"p | main | k8s.io/rdt | gold | - | container | Pending: the pod has no node yet"},

		{"a container is refused a class that is full", aPod("p").on("n1").asks("rdt=gold").waiting("CreateContainerError", "rpc error: …"), "", func(t *testing.T, r *rig) {
			r.refuses(t, "main", "ClassFull", `class "gold" of k8s.io/rdt is full: 2 of 2 in use; available: silver (1 free), bronze`)
		},
			`p | main | k8s.io/rdt | gold | - | container | ClassFull: class "gold" of k8s.io/rdt is full: 2 of 2 in use; available: silver (1 free), bronze`},
		{"of two containers that are refused, each has its own reason", aPod("p").with("side").on("n1").annotated(podKey, "rdt=gold"), "", func(t *testing.T, r *rig) {
			r.refuses(t, "main", "ClassFull", `class "gold" of k8s.io/rdt is full`)
			r.refuses(t, "side", "UnknownClass", `class "gold" of k8s.io/rdt does not exist`)
		}, `p | main | k8s.io/rdt | gold | - | pod | ClassFull: class "gold" of k8s.io/rdt is full` + "\n" +
			`p | side | k8s.io/rdt | gold | - | pod | UnknownClass: class "gold" of k8s.io/rdt does not exist`},
		{"one container is being created, and another is refused", aPod("p").with("side").on("n1").asks("rdt=gold").waiting("ContainerCreating", ""), "", func(t *testing.T, r *rig) {
			r.refuses(t, "side", "ClassFull", `class "bronze" of k8s.io/rdt is full`)
		}, "p | main | k8s.io/rdt | gold | - | container | ContainerCreating\n" +
			`p | side | k8s.io/rdt | - | - | default | ClassFull: class "bronze" of k8s.io/rdt is full`},
		{"another pod with the same name was refused", aPod("p").on("n1").asks("rdt=gold").waiting("ContainerCreating", ""), "", func(t *testing.T, r *rig) {
			r.refuses(t, "main", "ClassFull", "full")
			r.updateStatus(t, "n1", func(status map[string]any) { status["refusals"].([]any)[0].(map[string]any)["podUID"] = "another" })
		}, "p | main | k8s.io/rdt | gold | - | container | ContainerCreating"},
		{"the pod is refused, and the node does not list all refusals", aPod("p").on("n1").asks("rdt=gold").waiting("CreateContainerError", "failed").
			reported(corev1.ConditionFalse, "ClassFull", "pod default/p container main: full", "12:40:00"), "", func(t *testing.T, r *rig) {
			r.updateStatus(t, "n1", func(status map[string]any) { status["refusalsOmitted"] = int64(7) })
		}, "p | main | k8s.io/rdt | gold | - | container | CreateContainerError: failed (condition of the pod: pod default/p container main: full)"},
		{"the pod is refused, and the condition is newer than the refusals", aPod("p").on("n1").asks("rdt=gold").waiting("CreateContainerError", "").
			reported(corev1.ConditionFalse, "ClassFull", "pod default/p container main: full", "12:59:30"), "", nil,
			"p | main | k8s.io/rdt | gold | - | container | CreateContainerError: (condition of the pod: pod default/p container main: full)"},
		{"the pod is not created, and the shim has not reported why", aPod("p").on("n1").asks("rdt=gold").waiting("CreateContainerError", `pod default/p container main: class "gold" is full`), "", nil,
			`p | main | k8s.io/rdt | gold | - | container | CreateContainerError: pod default/p container main: class "gold" is full`},
		{"the pod is being created", aPod("p").on("n1").asks("rdt=gold").waiting("ContainerCreating", ""), "", nil,
			"p | main | k8s.io/rdt | gold | - | container | ContainerCreating"},
		{"the pod crashes", aPod("p").on("n1").asks("rdt=gold").waiting("CrashLoopBackOff", "back-off 10s"), "", nil,
			"p | main | k8s.io/rdt | gold | - | container | CrashLoopBackOff: back-off 10s"},
		{"the pod requests a class that the node does not have", aPod("p").on("n1").asks("rdt=platin").waiting("CreateContainerError", "…"), "", nil,
			`p | main | k8s.io/rdt | platin | - | - | UnknownClass: class "platin" of k8s.io/rdt does not exist on this node; available: gold, silver, bronze, old`},
		{"the pod requests a resource that the node does not have", aPod("p").on("n1").asks("vendor.example/x=a").waiting("CreateContainerError", "…"), "", nil,
			"p | main | k8s.io/rdt | - | - | -\n" +
				`p | main | vendor.example/x | a | - | - | UnknownResource: resource "vendor.example/x" does not exist on this node; available: k8s.io/rdt`},
		{"the value of the annotation is not a pair", aPod("p").on("n1").asks("gold").waiting("CreateContainerError", "…"), "", nil,
			`p | main | k8s.io/rdt | - | - | - | BadRequest: the request has "gold", which is not of the form resource=class`},
		{"annotation and limits contradict", aPod("p").on("n1").asks("rdt=silver").limited(gold).waiting("CreateContainerError", "…"), "", nil,
			`p | main | k8s.io/rdt | silver | - | - | Contradiction: class "silver" of k8s.io/rdt contradicts the allocated class "gold"; request the same class in the annotation and in resources.limits`},
		{"two classes are in the limits of a container", aPod("p").on("n1").limited(gold).limited("qos.noderesource.dev/rdt.silver").waiting("CreateContainerError", "…"), "", nil,
			`p | main | k8s.io/rdt | silver | - | - | Contradiction: k8s.io/rdt has two classes, "gold" and "silver"; keep one of them`},
		{"the kubelet did not admit the pod", aPod("p").on("n1").limited(gold).ended(corev1.PodFailed, "UnexpectedAdmissionError", "ask for 1 of "+gold), "", nil,
			"p | main | k8s.io/rdt | gold | - | allocated | UnexpectedAdmissionError: ask for 1 of " + gold},
		{"the kubelet did not admit one of two resources of the pod", aPod("p").on("n1").limited(gold).limited("vendor.example/fixed.a").
			ended(corev1.PodFailed, "UnexpectedAdmissionError", "Allocate failed due to requested number of devices unavailable for qos.noderesource.dev/rdt.gold. Requested: 1, Available: 0, which is unexpected"), "", func(t *testing.T, r *rig) {
			r.addFixed(t)
		}, "p | main | k8s.io/rdt | gold | - | allocated | UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for qos.noderesource.dev/rdt.gold. Requested: 1, Available: 0, which is unexpected\n" +
			"p | main | vendor.example/fixed | a | - | allocated"},
		{"the kubelet did not admit another resource", aPod("p").on("n1").limited(gold).
			ended(corev1.PodFailed, "UnexpectedAdmissionError", "devices unavailable for example.com/gpu. Requested: 1"), "", nil,
			"p | main | k8s.io/rdt | gold | - | allocated | UnexpectedAdmissionError: devices unavailable for example.com/gpu. Requested: 1"},
		{"the pod is being deleted, and its class no longer exists", aPod("p").on("n1").asks("rdt=platin").waiting("ContainerCreating", "").terminating(), "", nil,
			"p | main | k8s.io/rdt | platin | - | - | Terminating: the pod is being deleted"},
		{"the pod has ended, and its class no longer exists", aPod("p").on("n1").asks("rdt=platin").ended(corev1.PodSucceeded, "", ""), "", nil,
			"p | main | k8s.io/rdt | platin | - | - | Succeeded"},
		{"the pod is being deleted, and has its class", aPod("p").on("n1").asks("rdt=gold").running().terminating(), "main=gold", nil,
			"p | main | k8s.io/rdt | gold | gold | container"},
		{"the pod has succeeded", aPod("p").on("n1").limited(gold).ended(corev1.PodSucceeded, "", ""), "", nil,
			"p | main | k8s.io/rdt | gold | - | allocated | Succeeded"},

		{"the pod's annotation names a container that the pod does not have", aPod("p").on("n1").annotated("container.qos.noderesource.dev/mian", "rdt=gold").running().
			reported(corev1.ConditionFalse, "AnnotationIgnored", "annotation …; in effect: main: k8s.io/rdt bronze (default)", "12:55:00"), "main=bronze", nil,
			"p | main | k8s.io/rdt | - | bronze | default\n" +
				"p | mian | - | - | - | - | AnnotationIgnored: annotation container.qos.noderesource.dev/mian names no container of the pod; its containers are main"},
		{"the pod's annotation has an unknown key", aPod("p").on("n1").annotated("qos.noderesource.dev/pods", "rdt=gold").running().
			reported(corev1.ConditionFalse, "AnnotationIgnored", "annotation …; in effect: main: k8s.io/rdt bronze (default)", "12:55:00"), "main=bronze/default", nil,
			"p | main | k8s.io/rdt | - | bronze | default\n" +
				"p | <pod> | - | - | - | - | AnnotationIgnored: annotation qos.noderesource.dev/pods is not known; write qos.noderesource.dev/pod, container.qos.noderesource.dev/<container> or volumes.qos.noderesource.dev/<container>"},
		{"an annotation with an unknown key is not the reason why another class is not in effect", aPod("p").on("n1").
			annotated("qos.noderesource.dev/pods", "rdt=gold").annotated(podKey, "vendor.example/disk=fast").running().
			reported(corev1.ConditionFalse, "AnnotationIgnored", "annotation …; in effect: main: k8s.io/rdt bronze (default)", "12:40:00"), "main=bronze/default",
			addDisk,
			"p | <pod> | vendor.example/disk | fast | <system default> | pod | NotFollowed: the class was requested after the container started, and is not applied yet\n" +
				"p | main | k8s.io/rdt | - | bronze | default\n" +
				"p | <pod> | - | - | - | - | AnnotationIgnored: annotation qos.noderesource.dev/pods is not known; write qos.noderesource.dev/pod, container.qos.noderesource.dev/<container> or volumes.qos.noderesource.dev/<container>"},
		{"the pod's annotation changed, and the shim does not follow annotations", aPod("p").on("n1").asks("rdt=silver").running(), "main=gold", func(t *testing.T, r *rig) {
			r.updateStatus(t, "n1", func(status map[string]any) { status["followsAnnotations"] = false })
		}, "p | main | k8s.io/rdt | silver | gold | container | NotFollowed: the class was requested after the container started; qos-kubelet-shim runs without --follow-annotations, so the request applies only to new pods"},
		{"a change is refused", aPod("p").on("n1").asks("rdt=silver").running(), "main=gold", func(t *testing.T, r *rig) {
			r.refuses(t, "main", "ChangeRefused", `class "silver" of k8s.io/rdt is full: 1 of 1 in use`)
		},
			`p | main | k8s.io/rdt | silver | gold | container | ChangeRefused: class "silver" of k8s.io/rdt is full: 1 of 1 in use`},
		{"the pod's class was changed by hand", aPod("p").on("n1").limited(gold).running().
			reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt silver (update)", "12:55:00"), "main=silver/update", nil,
			"p | main | k8s.io/rdt | gold | silver | update | Changed: the class was changed at run time; a new container gets the class that the pod requests"},
		{"the pod ran before the plugin started", aPod("p").on("n1").asks("rdt=gold").running().
			reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt silver (adopted)", "12:55:00"), "main=silver/adopted", nil,
			"p | main | k8s.io/rdt | gold | silver | adopted | Adopted: qos-nri-plugin could not move the container or pod from this class; its log has the reason"},
		{"the pod ran before there was a default class", aPod("p").on("n1").running(), "", nil,
			"p | main | k8s.io/rdt | - | <system default> | default | CreatedBefore: the container or pod was created before qos-nri-plugin started or these class files were applied; recreate the pod"},

		{"the condition is newer than the holders", aPod("p").on("n1").asks("rdt=silver").running().
			reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt silver (update)", "12:59:30"), "main=gold", nil,
			"p | main | k8s.io/rdt | silver | silver | update"},
		{"the holders are newer than the condition", aPod("p").on("n1").asks("rdt=silver").running().
			reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt silver (container)", "12:40:00"), "main=gold", nil,
			"p | main | k8s.io/rdt | silver | gold | container | NotFollowed: the class was requested after the container started, and is not applied yet"},
		{"the pod has just started, and the node has not reported it yet", aPod("p").on("n1").asks("rdt=gold").since(time.Date(2026, 5, 1, 12, 59, 50, 0, time.UTC)), "", nil,
			`p | main | k8s.io/rdt | gold | unknown | container | NotReported: the container or pod has just started, or its node does not list all containers and pods that have classes; see "qos-nri-plugin assignments" on the node`},
		{"not all holders are named", aPod("p").on("n1").asks("rdt=gold").running(), "", func(t *testing.T, r *rig) {
			r.updateRDT(t, "gold", func(of map[string]any) { of["holdersOmitted"] = int64(3) })
		}, `p | main | k8s.io/rdt | gold | unknown | container | NotReported: the container or pod has just started, or its node does not list all containers and pods that have classes; see "qos-nri-plugin assignments" on the node`},
		{"not all holders are named, but the pod's condition has the class", aPod("p").on("n1").asks("rdt=gold").running().
			reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt gold (container)", "12:40:00"), "", func(t *testing.T, r *rig) {
			r.updateRDT(t, "gold", func(of map[string]any) { of["holdersOmitted"] = int64(3) })
		}, "p | main | k8s.io/rdt | gold | gold | container"},
		{"the pod is to be evicted", aPod("p").on("n1").asks("rdt=old").running(), "main=old/container", func(t *testing.T, r *rig) {
			r.updateRDT(t, "old", func(of map[string]any) { of["holders"].([]any)[0].(map[string]any)["reason"] = "ClassRemoved" })
		}, "p | main | k8s.io/rdt | old | old | container | ClassRemoved: the class is no longer configured, and the pod will be evicted"},
		{"of two containers with the same name, the one with the requested class is shown", aPod("p").on("n1").asks("rdt=silver").running(), "main=gold/container,main=silver/container", nil,
			"p | main | k8s.io/rdt | silver | silver | container"},
		{"the plugin does not run", aPod("p").on("n1").asks("rdt=gold").running(), "main=gold", notReady,
			"p | main | k8s.io/rdt | gold | gold | container | PluginNotReady: last known state: qos-nri-plugin of n1 has not been ready since 2026-05-01T12:00:00Z"},
		{"the node does not report", aPod("p").on("n1").asks("rdt=gold").running(), "main=gold", func(t *testing.T, r *rig) { r.reportedAt(t, "n1", elevenMinutesAgo) },
			"p | main | k8s.io/rdt | gold | gold | container | NodeNotReported: last known state: the last report of qos-kubelet-shim on n1 was 10m ago"},
		{"the pod's node has no NodeQOSResources", aPod("p").on("n9").asks("rdt=gold").running(), "", nil,
			"p | main | k8s.io/rdt | gold | unknown | container | NodeNotReported: no NodeQOSResources of n9 can be read; check that qos-kubelet-shim runs there"},
		{"each of two containers has its own class", aPod("p").with("side").on("n1").limited(gold).running(), "main=gold,side=bronze", nil,
			"p | main | k8s.io/rdt | gold | gold | allocated\np | side | k8s.io/rdt | - | bronze | default"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, "plain.yaml")
			r.put(t, c.pod.Pod)
			r.holds(t, c.holds)
			if c.node != nil {
				c.node(t, r)
			}
			got := r.run(t, "pods", "p")
			if diff := cmp.Diff(c.want, bare(got.Out)); diff != "" || got.Code != 0 || got.Errors != "" {
				t.Errorf("exit code %d, errors %q, rows (-want +got):\n%s", got.Code, got.Errors, diff)
			}
		})
	}
}

// TestDocumentsOfPodsShowTheSystemDefaultAsEmptyText: null would mean that the class is none or unknown.
func TestDocumentsOfPodsShowTheSystemDefaultAsEmptyText(t *testing.T) {
	r := newRig(t, "plain.yaml")
	r.put(t, aPod("p").on("n1").asks("rdt=").running().Pod)

	got := r.run(t, "pods", "-o", "json")
	var document struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(got.Out), &document); err != nil {
		t.Fatalf("%v in %+v", err, got)
	}

	want := []map[string]any{{
		"namespace": "default", "pod": "p", "container": "main", "resource": "k8s.io/rdt", "requested": "",
		"requestedBy": "container.qos.noderesource.dev/main", "source": "container", "effective": "", "reason": "", "message": "", "node": "n1",
	}}

	if diff := cmp.Diff(want, document.Items); diff != "" {
		t.Errorf("items differ (-want +got):\n%s", diff)
	}
}

// TestSeveralPodsCanBeNamed: the rows are sorted, and a pod that is named twice has one row. A missing pod is an error. The completion
// omits pods that are already named.
func TestSeveralPodsCanBeNamed(t *testing.T) {
	r := newRig(t, "plain.yaml")
	for _, name := range []string{"a", "b", "c"} {
		r.put(t, aPod(name).on("n1").running().Pod)
	}

	want := "a | main | k8s.io/rdt | - | <system default> | default | "
	got := r.run(t, "pods", "pod/c", "a", "a")
	if rows := bare(got.Out); got.Code != 0 || !strings.HasPrefix(rows, want) || !strings.Contains(rows, "\nc | main") || strings.Count(rows, "\n") != 1 {
		t.Errorf("answer is %+v, rows\n%s", got, rows)
	}
	wantAnswer(t, answer{Code: 1, Errors: "Error: there is no pod \"d\" in namespace \"default\"; name another namespace with -n\n"}, r.run(t, "pods", "a", "d"))
	if got := r.run(t, "__completeNoDesc", "pods", "a", ""); got.Out != "b\nc\n:4\n" {
		t.Errorf("completes %q", got.Out)
	}
}

// TestAPodWithASandboxHasTheClassesOfThePod uses a pod whose containers wait for their images. The condition PodReadyToStartContainers says
// whether the pod already has a sandbox.
func TestAPodWithASandboxHasTheClassesOfThePod(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]string{
		corev1.ConditionTrue:  "p | <pod> | vendor.example/disk | fast | <system default> | pod | NotFollowed: the class was requested after the container started, and is not applied yet",
		corev1.ConditionFalse: "p | <pod> | vendor.example/disk | fast | - | pod | ",
	} {
		pod := aPod("p").on("n1").annotated(podKey, "vendor.example/disk=fast").since(time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC)).waiting("ImagePullBackOff", "")
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: status})
		r := newRig(t, "plain.yaml")
		addDisk(t, r)
		r.put(t, pod.Pod)
		if got := bare(r.run(t, "pods", "p").Out); !strings.Contains(got, want) {
			t.Errorf("PodReadyToStartContainers is %s:\n got %s\nwant %s", status, got, want)
		}
	}
}
