// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
)

const (
	none      = qosv1alpha1.Source_SOURCE_UNSPECIFIED
	container = qosv1alpha1.Source_SOURCE_CONTAINER
	allocated = qosv1alpha1.Source_SOURCE_ALLOCATED
	fromPod   = qosv1alpha1.Source_SOURCE_POD
	standard  = qosv1alpha1.Source_SOURCE_DEFAULT
)

func has(resource, class string, source qosv1alpha1.Source) *qosv1alpha1.Assignment {
	return &qosv1alpha1.Assignment{Name: resource, Class: class, Source: source}
}

func ctr(name, id string, assignments ...*qosv1alpha1.Assignment) *qosv1alpha1.ContainerAssignments {
	return &qosv1alpha1.ContainerAssignments{Name: name, Id: id, QosResources: assignments}
}

func podWith(names ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-web"}}
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
	}
	return pod
}

// annotated adds an annotation with a request to a pod, and returns the pod as it is in the informer's cache.
func annotated(pod *corev1.Pod, key string) *corev1.Pod {
	pod.Annotations = map[string]string{key: "rdt=gold"}
	stripped, _ := strip(pod)
	return stripped.(*corev1.Pod)
}

func assigned(containers ...*qosv1alpha1.ContainerAssignments) *qosv1alpha1.PodAssignments {
	return &qosv1alpha1.PodAssignments{Uid: "uid-web", Namespace: "default", Name: "web", Containers: containers}
}

// TestCondition compares the condition of a pod with what the plugin reports of it.
func TestCondition(t *testing.T) {
	network := assigned(ctr("main", "1", has("k8s.io/rdt", "", none)))
	network.QosResources = []*qosv1alpha1.Assignment{has("vendor.example/network", "fast", fromPod)}
	theirs := has("k8s.io/rdt", "", container)
	theirs.Foreign = "resctrl group batch"
	published := podWith("main")
	published.Status.Conditions = []corev1.PodCondition{{Type: nodeqosv1alpha1.PodConditionAssigned, Status: corev1.ConditionTrue}}
	restarted := podWith("main")
	restarted.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://1"}}
	withInit := podWith("main")
	withInit.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	withDebugger := podWith("main")
	withDebugger.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	gold := ctr("main", "1", has("k8s.io/rdt", "gold", container))
	withVolumes := ctr("main", "1", has("k8s.io/rdt", "gold", container))
	withVolumes.Volumes = []*qosv1alpha1.VolumeAssignments{
		{Path: "/data", Device: "253:3", QosResources: []*qosv1alpha1.Assignment{has("volume-io", "silver", container)}},
		{Path: "/lost", QosResources: []*qosv1alpha1.Assignment{has("volume-io", "", container)}},
	}

	withVolumes.Volumes[0].QosResources[0].Foreign = "lower limits on 253:3 rbps=100"
	ruled := has("k8s.io/rdt", "bronze", qosv1alpha1.Source_SOURCE_RULE)
	ruled.RequestedBy = "batch"
	for _, c := range []struct {
		name string
		observed
		want string // "status reason: message", or empty if no condition is wanted
	}{
		{
			"every class of every container in the pod's order, defaults included",
			observed{pod: podWith("main-app", "sidecar"), assignments: assigned(
				ctr("sidecar", "2", has("k8s.io/rdt", "bronze", standard), has("k8s.io/blockio", "", none)),
				ctr("main-app", "1", has("k8s.io/rdt", "gold", allocated), has("k8s.io/blockio", "high-prio", container)),
			)},
			"True Assigned: main-app: k8s.io/rdt gold (allocated), k8s.io/blockio high-prio (container); " +
				"sidecar: k8s.io/rdt bronze (default), k8s.io/blockio system default",
		},
		{"classes of the pod come first", observed{pod: podWith("main"), assignments: network}, "True Assigned: pod: vendor.example/network fast (pod); main: k8s.io/rdt system default"},
		{"a pod that has only system defaults gets no condition", observed{pod: podWith("main"), assignments: assigned(ctr("main", "1", has("k8s.io/rdt", "", none)))}, ""},
		{"a requested system default is published", observed{pod: podWith("main"), assignments: assigned(ctr("main", "1", has("k8s.io/rdt", "", container)))}, "True Assigned: main: k8s.io/rdt system default (container)"},
		{"what another program has set in place of a requested system default is published", observed{pod: podWith("main"), assignments: assigned(ctr("main", "1", theirs))}, "True Assigned: main: k8s.io/rdt resctrl group batch (container)"},
		{"a published condition is updated to system defaults", observed{pod: published, assignments: assigned(ctr("main", "1", has("k8s.io/rdt", "", none)))}, "True Assigned: main: k8s.io/rdt system default"},
		{"a class of a rule", observed{pod: podWith("main"), assignments: assigned(ctr("main", "1", ruled))}, "True Assigned: main: k8s.io/rdt bronze (rule batch)"},
		{"a pod that the plugin does not have is left unchanged", observed{pod: published}, ""},
		{"a refusal has the plugin's reason", observed{pod: podWith("main"), refusals: []podevents.Record{{Container: "main", Series: "ClassFull", Message: "full"}}}, "False ClassFull: full"},
		{"a refusal without a reason is Refused", observed{pod: podWith("main"), refusals: []podevents.Record{{Message: "no"}}}, "False Refused: no"},
		{
			"a refusal lists the classes in effect",
			observed{pod: podWith("main", "other"), assignments: assigned(gold), refusals: []podevents.Record{{Container: "other", Series: "ClassFull", Message: "full"}}},
			"False ClassFull: full; in effect: main: k8s.io/rdt gold (container)",
		},
		{
			"volumes are listed with their class and their disk", observed{pod: podWith("main"), assignments: assigned(withVolumes)},
			"True Assigned: main: k8s.io/rdt gold (container); main volume /data: silver, in force on 253:3, and another program has set lower limits on 253:3 rbps=100; main volume /lost: not in force",
		},
		{
			"a refused change lists the classes in effect",
			observed{pod: podWith("main"), assignments: assigned(gold), refusedChanges: []podevents.Record{{Message: "silver is full"}}},
			"False ChangeRefused: silver is full; in effect: main: k8s.io/rdt gold (container)",
		},
		{
			"an annotation for a container that the pod does not have is reported",
			observed{pod: annotated(podWith("main", "side"), "container.qos.noderesource.dev/mian"), assignments: assigned(gold)},
			"False AnnotationIgnored: annotation container.qos.noderesource.dev/mian names no container of the pod; its containers are main, side; " +
				"in effect: main: k8s.io/rdt gold (container)",
		},
		{
			"an annotation with an unknown key is reported, also without any class",
			observed{pod: annotated(podWith("main"), "qos.noderesource.dev/pods"), assignments: assigned()},
			"False AnnotationIgnored: annotation qos.noderesource.dev/pods is not known; " +
				"write qos.noderesource.dev/pod, container.qos.noderesource.dev/<container> or volumes.qos.noderesource.dev/<container>",
		},
		{
			"an annotation for an ephemeral container is not reported",
			observed{pod: annotated(withDebugger, "container.qos.noderesource.dev/debug"), assignments: assigned(gold)},
			"True Assigned: main: k8s.io/rdt gold (container)",
		},
		{
			"a refusal comes before an annotation that requests nothing",
			observed{pod: annotated(podWith("main"), "qos.noderesource.dev/pods"), refusals: []podevents.Record{{Message: "no", Series: "ClassFull"}}},
			"False ClassFull: no",
		},
		{
			"of a restarted container and its predecessor, the one in the kubelet's status is published",
			observed{pod: restarted, assignments: assigned(gold, ctr("main", "0", has("k8s.io/rdt", "silver", container)))},
			"True Assigned: main: k8s.io/rdt gold (container)",
		},
		{
			"a container keeps its classes between its end and its restart",
			observed{pod: podWith("main", "other"), assignments: assigned(ctr("other", "2", has("k8s.io/rdt", "", none))), last: map[string]*qosv1alpha1.ContainerAssignments{"main": gold}},
			"True Assigned: main: k8s.io/rdt gold (container); other: k8s.io/rdt system default",
		},
		{
			"an init container is not published after its end",
			observed{pod: withInit, assignments: assigned(gold), last: map[string]*qosv1alpha1.ContainerAssignments{"setup": ctr("setup", "0", has("k8s.io/rdt", "silver", container))}},
			"True Assigned: main: k8s.io/rdt gold (container)",
		},
		{
			"an ephemeral container comes last",
			observed{pod: podWith("main"), assignments: assigned(ctr("debug", "2", has("k8s.io/rdt", "bronze", standard)), gold)},
			"True Assigned: main: k8s.io/rdt gold (container); debug: k8s.io/rdt bronze (default)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if condition := c.condition(metav1.Now()); condition != nil {
				got = fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTransitionTimeChangesOnlyWithTheStatus(t *testing.T) {
	before, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	pod := podWith("main")
	pod.Status.Conditions = []corev1.PodCondition{{Type: nodeqosv1alpha1.PodConditionAssigned, Status: corev1.ConditionTrue, Message: "old", LastTransitionTime: before}}
	o := observed{pod: pod, assignments: assigned(ctr("main", "1", has("k8s.io/rdt", "gold", container)))}
	if got := o.condition(now); !got.LastTransitionTime.Equal(&before) {
		t.Errorf("another message: transition at %v, want %v", got.LastTransitionTime, before)
	}
	o.refusals = []podevents.Record{{Message: "no"}}
	if got := o.condition(now); !got.LastTransitionTime.Equal(&now) {
		t.Errorf("another status: transition at %v, want %v", got.LastTransitionTime, now)
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	pod, list := podWith(), assigned()
	for i := range 200 {
		name := fmt.Sprintf("container-%03d", i)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		list.Containers = append(list.Containers, ctr(name, name, has("k8s.io/rdt", "gold", container), has("k8s.io/blockio", "", none)))
	}

	o := observed{pod: pod, assignments: list}
	got := o.condition(metav1.Now()).Message
	listed := strings.Count(got, "container-")
	if len(got) > maxMessage || len(got) < maxMessage/2 || !strings.HasSuffix(got, fmt.Sprintf(`; and %d more: see "qos-nri-plugin assignments" on the node`, 200-listed)) {
		t.Errorf("the message has %d bytes, and ends with …%s", len(got), got[max(len(got)-200, 0):])
	}

	o.refusals = []podevents.Record{{Message: strings.Repeat("ä", maxMessage)}}
	got = o.condition(metav1.Now()).Message
	if len(got) > maxMessage || !utf8.ValidString(got) || !strings.Contains(got, "… (cut); in effect: container-000") {
		t.Errorf("the message has %d bytes (valid UTF-8: %v): %s", len(got), utf8.ValidString(got), got)
	}
}
