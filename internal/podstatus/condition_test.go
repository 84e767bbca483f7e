// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
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

func assigned(containers ...*qosv1alpha1.ContainerAssignments) *qosv1alpha1.PodAssignments {
	return &qosv1alpha1.PodAssignments{Uid: "uid-web", Namespace: "default", Name: "web", Containers: containers}
}

func TestWhatTheConditionTells(t *testing.T) {
	network := assigned(ctr("main", "1", has("k8s.io/rdt", "", none)))
	network.QosResources = []*qosv1alpha1.Assignment{has("vendor.example/network", "fast", fromPod)}
	told := podWith("main")
	told.Status.Conditions = []corev1.PodCondition{{Type: ConditionType, Status: corev1.ConditionTrue}}
	restarted := podWith("main")
	restarted.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://1"}}
	withInit := podWith("main")
	withInit.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	gold := ctr("main", "1", has("k8s.io/rdt", "gold", container))
	for _, c := range []struct {
		name string
		observed
		want string // status reason: message; empty is none
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
		{"nothing but system defaults is not told", observed{pod: podWith("main"), assignments: assigned(ctr("main", "1", has("k8s.io/rdt", "", none)))}, ""},
		{"the system default by request is told", observed{pod: podWith("main"), assignments: assigned(ctr("main", "1", has("k8s.io/rdt", "", container)))}, "True Assigned: main: k8s.io/rdt system default (container)"},
		{"what was told before is kept right", observed{pod: told, assignments: assigned(ctr("main", "1", has("k8s.io/rdt", "", none)))}, "True Assigned: main: k8s.io/rdt system default"},
		{"a pod that the plugin does not know is left", observed{pod: told}, ""},
		{"a refusal has the plugin's word", observed{pod: podWith("main"), refusals: []*qosv1alpha1.Refusal{{Container: "main", Reason: "ClassFull", Message: "full"}}}, "False ClassFull: full"},
		{"a refusal without a word is Refused", observed{pod: podWith("main"), refusals: []*qosv1alpha1.Refusal{{Message: "no"}}}, "False Refused: no"},
		{
			"what others have is told beside a refusal",
			observed{pod: podWith("main", "other"), assignments: assigned(gold), refusals: []*qosv1alpha1.Refusal{{Container: "other", Reason: "ClassFull", Message: "full"}}},
			"False ClassFull: full; in effect: main: k8s.io/rdt gold (container)",
		},
		{
			"a refused change says what the pod has still",
			observed{pod: podWith("main"), assignments: assigned(gold), changes: []podrequests.Refused{{Message: "silver is full"}}},
			"False ChangeRefused: silver is full; in effect: main: k8s.io/rdt gold (container)",
		},
		{
			"of a restarted container the one is told that the kubelet knows",
			observed{pod: restarted, assignments: assigned(gold, ctr("main", "0", has("k8s.io/rdt", "silver", container)))},
			"True Assigned: main: k8s.io/rdt gold (container)",
		},
		{
			"a container that restarts has what it had",
			observed{pod: podWith("main", "other"), assignments: assigned(ctr("other", "2", has("k8s.io/rdt", "", none))), last: map[string]*qosv1alpha1.ContainerAssignments{"main": gold}},
			"True Assigned: main: k8s.io/rdt gold (container); other: k8s.io/rdt system default",
		},
		{
			"an init container is told of while it is there",
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

func TestTheTransitionTimeChangesWithTheStatusAlone(t *testing.T) {
	before, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	pod := podWith("main")
	pod.Status.Conditions = []corev1.PodCondition{{Type: ConditionType, Status: corev1.ConditionTrue, Message: "old", LastTransitionTime: before}}
	o := observed{pod: pod, assignments: assigned(ctr("main", "1", has("k8s.io/rdt", "gold", container)))}
	if got := o.condition(now); !got.LastTransitionTime.Equal(&before) {
		t.Errorf("another message: transition at %v, want %v", got.LastTransitionTime, before)
	}
	o.refusals = []*qosv1alpha1.Refusal{{Message: "no"}}
	if got := o.condition(now); !got.LastTransitionTime.Equal(&now) {
		t.Errorf("another status: transition at %v, want %v", got.LastTransitionTime, now)
	}
}

func TestALongMessageIsCutAndSaysSo(t *testing.T) {
	pod, list := podWith(), assigned()
	for i := range 200 {
		name := fmt.Sprintf("container-%03d", i)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		list.Containers = append(list.Containers, ctr(name, name, has("k8s.io/rdt", "gold", container), has("k8s.io/blockio", "", none)))
	}
	o := observed{pod: pod, assignments: list}
	got := o.condition(metav1.Now()).Message
	told := strings.Count(got, "container-")
	if len(got) > maxMessage || len(got) < maxMessage/2 || !strings.HasSuffix(got, fmt.Sprintf(`; and %d more, which "qos-nri-plugin assignments" tells on the node`, 200-told)) {
		t.Errorf("%d bytes: …%s", len(got), got[max(len(got)-200, 0):])
	}
	o.refusals = []*qosv1alpha1.Refusal{{Message: strings.Repeat("ä", maxMessage)}}
	got = o.condition(metav1.Now()).Message
	if len(got) > maxMessage || !utf8.ValidString(got) || !strings.Contains(got, "… (cut); in effect: container-000") {
		t.Errorf("%d bytes, valid %v: %s", len(got), utf8.ValidString(got), got)
	}
}

func TestWhichChangesAreToldOfBetweenTwoStates(t *testing.T) {
	before := assigned(ctr("main", "1", has("k8s.io/rdt", "gold", container), has("k8s.io/blockio", "", none)))
	for _, c := range []struct {
		name  string
		after *qosv1alpha1.ContainerAssignments
		want  string
	}{
		{"another class is one", ctr("main", "1", has("k8s.io/rdt", "silver", container), has("k8s.io/blockio", "", none)), "main: k8s.io/rdt gold -> silver"},
		{"to the system default is one", ctr("main", "1", has("k8s.io/rdt", "", none)), "main: k8s.io/rdt gold -> system default"},
		{"two are told together", ctr("main", "1", has("k8s.io/rdt", "silver", container), has("k8s.io/blockio", "fast", container)), "main: k8s.io/rdt gold -> silver, k8s.io/blockio system default -> fast"},
		{"another source of the same class is none", ctr("main", "1", has("k8s.io/rdt", "gold", allocated)), ""},
		{"another container of the name is none", ctr("main", "2", has("k8s.io/rdt", "silver", container)), ""},
		{"a resource that came or went is none", ctr("main", "1", has("vendor.example/new", "a", container)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, o := range changed(before, assigned(c.after), time.Now()) {
				got = append(got, o.message)
			}
			if strings.Join(got, "|") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestHowOftenAnEventHappened(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 500) }
	event := &corev1.Event{Count: 3, FirstTimestamp: metav1.Unix(10, 0), LastTimestamp: metav1.Unix(30, 0)}
	for _, c := range []struct {
		name        string
		count       uint64
		first, last time.Time
		want        int32
		ok          bool
	}{
		{"nothing new is not told again", 3, at(10), at(30), 3, false},
		{"the same counter goes on", 5, at(10), at(50), 5, true},
		{"a counter that began anew adds to it", 2, at(40), at(50), 5, true},
		{"a counter that forgot some still goes up", 2, at(20), at(50), 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := raised(event, occurrence{count: c.count, first: c.first, last: c.last})
			if got != c.want || ok != c.ok {
				t.Errorf("got %d, %v; want %d, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func TestAnEventHasANameOfItsOwn(t *testing.T) {
	pod, o := podWith("main"), occurrence{reason: EventRefused, container: "main", series: "ClassFull", message: "1 of 1"}
	name := eventName(pod, o)
	repeated := o
	repeated.message = "2 of 1"
	if eventName(pod, repeated) != name {
		t.Error("a repeated refusal is another event")
	}
	for what, differs := range map[string]func() string{
		"pod":       func() string { p := podWith("main"); p.UID = "other"; return eventName(p, o) },
		"container": func() string { x := o; x.container = "other"; return eventName(pod, x) },
		"reason":    func() string { x := o; x.reason = EventChanged; return eventName(pod, x) },
		"series":    func() string { x := o; x.series = "UnknownClass"; return eventName(pod, x) },
	} {
		if differs() == name {
			t.Errorf("another %s has the same event", what)
		}
	}
	pod.Name = strings.Repeat("a", 235) + "." + strings.Repeat("b", 17)
	if long := eventName(pod, o); len(long) > 253 || strings.Contains(long, "..") {
		t.Errorf("%d characters: %s", len(long), long)
	}
}

func TestChangesAreToldOfHoweverLateThePodIsLookedAt(t *testing.T) {
	state := func(class string) *snapshot {
		pod := assigned(ctr("main", "1", has("k8s.io/rdt", class, container)))
		return &snapshot{ready: true, pods: map[string]*qosv1alpha1.PodAssignments{pod.GetUid(): pod}}
	}
	c := changes{byPod: map[podKey][]occurrence{}}
	first, second, third := state("gold"), state("silver"), state("bronze")
	c.note(nil, first)
	c.note(first, second)
	c.note(second, third)
	var got []string
	for _, o := range c.take(assigned()) {
		got = append(got, o.message)
	}
	if want := []string{"main: k8s.io/rdt gold -> silver", "main: k8s.io/rdt silver -> bronze"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if again := c.take(assigned()); len(again) != 0 {
		t.Errorf("told again: %v", again)
	}
	c.note(third, first)
	c.note(first, &snapshot{ready: true})
	if len(c.byPod) != 0 {
		t.Errorf("kept for a pod that is gone: %v", c.byPod)
	}
}
