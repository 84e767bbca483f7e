// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// at is a time of day on the day of the tests.
func at(hour, minute, second int) time.Time {
	return time.Date(2030, 5, 6, hour, minute, second, 0, time.UTC)
}

// status returns the status of a plugin that was started at a time.
func status(started time.Time) *qosv1alpha1.StatusResponse {
	stamp := timestamppb.New(started.Add(300 * time.Millisecond))
	return &qosv1alpha1.StatusResponse{
		Conditions: []*qosv1alpha1.Condition{
			{Type: "ConfigurationApplied", Healthy: true, Reason: "Applied", Message: "in force", LastTransitionTime: stamp},
			{Type: "RuntimeRegistered", Healthy: true, Message: "registered", LastTransitionTime: stamp},
		},
		Resources: &qosv1alpha1.ResourcesInfo{
			PodQosResources: []*qosv1alpha1.QOSResourceInfo{{Name: "qos.noderesource.dev/pod-blockio", Classes: []*qosv1alpha1.QOSResourceClassInfo{
				{Name: "slow", InUse: 1}}}},
			ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{{
				Name: "k8s.io/rdt", Mutable: true, DefaultClass: "bronze",
				Conditions: []*qosv1alpha1.Condition{{Type: "BandwidthRounded", Reason: "Rounded", Message: "5 is 10", LastTransitionTime: stamp}},
				Classes: []*qosv1alpha1.QOSResourceClassInfo{
					{Name: "gold", Capacity: 2, InUse: 1, Description: "fast", ExtendedResource: "qos.noderesource.dev/rdt.gold"},
					{Name: "bronze", InUse: 1, Degraded: "no MBA"},
					{Name: "old", Draining: true},
				},
			}},
		},
		UnavailableResources: []*qosv1alpha1.UnavailableResource{
			{Name: "k8s.io/blockio", Reason: "NoController", Message: "enable io", Scope: qosv1alpha1.Scope_SCOPE_CONTAINER},
			{Name: "volume-io", Reason: "NoHierarchyInV1", Scope: qosv1alpha1.Scope_SCOPE_VOLUME},
		},
		Plugin:  &qosv1alpha1.PluginInfo{Version: "v1", StartedAt: stamp},
		Runtime: &qosv1alpha1.RuntimeInfo{Name: "containerd", Version: "v2", NriVersion: "v0.12", Registered: true, RegisteredAt: stamp},
		Config:  &qosv1alpha1.ConfigInfo{Generation: 3, Hash: "abc", LoadedAt: stamp},
	}
}

func container(name, class string) *qosv1alpha1.ContainerAssignments {
	return &qosv1alpha1.ContainerAssignments{Name: name, QosResources: []*qosv1alpha1.Assignment{
		{Name: "k8s.io/rdt", Class: class, Source: qosv1alpha1.Source_SOURCE_ALLOCATED},
	}}
}

// foreign returns a container that has no class, but has a setting of another program, e.g. a resctrl group.
func foreign(name, setting string) *qosv1alpha1.ContainerAssignments {
	of := container(name, "")
	of.QosResources[0].Foreign = setting
	return of
}

func state(s *qosv1alpha1.StatusResponse) nodecache.State {
	return nodecache.State{Status: s, Latest: s, Assignments: &qosv1alpha1.ListAssignmentsResponse{
		Evictions: []*qosv1alpha1.Eviction{{PodUid: "job", Container: "work", Resource: "k8s.io/rdt", Reason: "ClassRemoved"}},
		Pods: []*qosv1alpha1.PodAssignments{
			{Uid: "web", Namespace: "a", Name: "web", Containers: []*qosv1alpha1.ContainerAssignments{container("app", "gold"), container("app", "gold"), container("log", ""), foreign("batch", "resctrl group batch")},
				QosResources: []*qosv1alpha1.Assignment{{Name: "qos.noderesource.dev/pod-blockio", Class: "slow", Source: qosv1alpha1.Source_SOURCE_POD}}},
			{Uid: "job", Namespace: "b", Name: "job", Containers: []*qosv1alpha1.ContainerAssignments{container("work", "bronze")}},
		}}}
}

// published returns the status that is published at 9:00 for status(at(8, 0, 0)).
func published() nodeqosv1alpha1.NodeQOSResourcesStatus {
	eight, nine := metav1.NewTime(at(8, 0, 0)), metav1.NewTime(at(9, 0, 0))
	return nodeqosv1alpha1.NodeQOSResourcesStatus{
		QOSResources: nodeqosv1alpha1.QOSResourceStatus{
			PodQOSResources: []nodeqosv1alpha1.QOSResourceInfo{{Name: "qos.noderesource.dev/pod-blockio", Conditions: []metav1.Condition{},
				Classes: []nodeqosv1alpha1.QOSResourceClassInfo{{Name: "slow", InUse: 1, Holders: []nodeqosv1alpha1.Holder{{Namespace: "a", Pod: "web", Source: "pod"}}}}}},
			ContainerQOSResources: []nodeqosv1alpha1.QOSResourceInfo{{
				Name: "k8s.io/rdt", Mutable: true, DefaultClass: "bronze",
				Foreign:    []nodeqosv1alpha1.ForeignSetting{{Namespace: "a", Pod: "web", Container: "batch", Setting: "resctrl group batch"}},
				Conditions: []metav1.Condition{{Type: "BandwidthRounded", Status: "False", Reason: "Rounded", Message: "5 is 10", LastTransitionTime: eight}},
				Classes: []nodeqosv1alpha1.QOSResourceClassInfo{
					{Name: "gold", Capacity: 2, InUse: 1, Description: "fast", ExtendedResource: "qos.noderesource.dev/rdt.gold",
						Holders: []nodeqosv1alpha1.Holder{{Namespace: "a", Pod: "web", Container: "app", Source: "allocated"}}},
					{Name: "bronze", InUse: 1, Degraded: "no MBA", Holders: []nodeqosv1alpha1.Holder{
						{Namespace: "b", Pod: "job", Container: "work", Source: "allocated", Reason: "ClassRemoved"},
					}},
					{Name: "old", Draining: true},
				},
			}},
		},
		UnavailableResources: []nodeqosv1alpha1.UnavailableResource{
			{Name: "k8s.io/blockio", Scope: "Container", Reason: "NoController", Message: "enable io"},
			{Name: "volume-io", Scope: "Volume", Reason: "NoHierarchyInV1"},
		},
		Conditions: []metav1.Condition{
			{Type: "ConfigurationApplied", Status: "True", Reason: "Applied", Message: "in force", LastTransitionTime: eight},
			{Type: "RuntimeRegistered", Status: "True", Reason: "AsExpected", Message: "registered", LastTransitionTime: eight},
			{Type: "PluginReady", Status: "True", Reason: "Ready", LastTransitionTime: nine,
				Message: "qos-nri-plugin answers, has class files in force and is registered with the container runtime."},
		},
		Config:  nodeqosv1alpha1.ConfigStatus{Hash: "abc", LoadedAt: &eight},
		Plugin:  nodeqosv1alpha1.PluginStatus{Version: "v1"},
		Runtime: nodeqosv1alpha1.RuntimeStatus{Name: "containerd", Version: "v2", NRIVersion: "v0.12"},
	}
}

// with returns what published() returns, after the function `change` has modified it.
func with(change func(*nodeqosv1alpha1.NodeQOSResourcesStatus)) nodeqosv1alpha1.NodeQOSResourcesStatus {
	changed := published()
	change(&changed)
	return changed
}

// notReady returns the condition of a plugin that has not been ready since 9:30.
func notReady(reason, message string) metav1.Condition {
	return metav1.Condition{Type: "PluginReady", Status: "False", Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at(9, 30, 0))}
}

// TestDesiredStatus computes the status to publish from the state of the plugin and from the status that was published before. In the cases
// with `away` and `silent`, the plugin has not been ready since 9:30. After 30 s, the status reports this.
func TestDesiredStatus(t *testing.T) {
	eight := state(status(at(8, 0, 0)))
	away := func(latest *qosv1alpha1.StatusResponse) nodecache.State {
		s := eight
		s.Latest, s.NotReadySince, s.Problem = latest, at(9, 30, 0), "gone"
		return s
	}

	// silent is the state if the plugin has not answered since the shim started.
	silent := nodecache.State{NotReadySince: at(9, 30, 0), Problem: "gone"}
	refused := status(at(10, 0, 0))
	refused.Conditions[0].Healthy, refused.Conditions[0].Reason = false, "Refused"
	refused.Config = &qosv1alpha1.ConfigInfo{LastError: "gold.yaml:1: no"}
	others := status(at(10, 0, 0))
	others.Config.Hash = "def"
	for name, test := range map[string]struct {
		state  nodecache.State
		before nodeqosv1alpha1.NodeQOSResourcesStatus
		now    time.Time
		want   nodeqosv1alpha1.NodeQOSResourcesStatus
		none   bool // if true, there is nothing to publish
	}{
		"all that the plugin reports is published, times in seconds":    {state: eight, now: at(9, 0, 0), want: published()},
		"a plugin that was started again changes nothing":               {state: state(status(at(10, 0, 0))), before: published(), now: at(10, 0, 1), want: published()},
		"a plugin that is away for a moment changes nothing":            {state: away(nil), before: published(), now: at(9, 30, 29), want: published()},
		"before the plugin has reported anything, nothing is published": {state: silent, before: published(), now: at(9, 30, 29), none: true},
		"a plugin that stays away is not ready, and all else stays": {
			state: away(nil), before: published(), now: at(9, 30, 30),
			want: with(func(s *nodeqosv1alpha1.NodeQOSResourcesStatus) { s.Conditions[2] = notReady("NotAnswering", "gone") })},
		"a shim that was started without a plugin leaves what was published": {
			state: silent, before: published(), now: at(9, 31, 0),
			want: with(func(s *nodeqosv1alpha1.NodeQOSResourcesStatus) { s.Conditions[2] = notReady("NotAnswering", "gone") })},
		"a node that never had a plugin is not ready": {
			state: silent, now: at(9, 31, 0),
			want: nodeqosv1alpha1.NodeQOSResourcesStatus{Conditions: []metav1.Condition{notReady("NotAnswering", "gone")}}},
		"another error of the connection to the plugin changes nothing": {
			state: away(nil), now: at(9, 40, 0),
			before: with(func(s *nodeqosv1alpha1.NodeQOSResourcesStatus) { s.Conditions[2] = notReady("NotAnswering", "EOF") }),
			want:   with(func(s *nodeqosv1alpha1.NodeQOSResourcesStatus) { s.Conditions[2] = notReady("NotAnswering", "EOF") })},
		"if the plugin has refused its class files, their error is published, and the former classes stay": {
			state: away(refused), before: published(), now: at(10, 0, 0),
			want: with(func(s *nodeqosv1alpha1.NodeQOSResourcesStatus) {
				s.Conditions[0] = metav1.Condition{Type: "ConfigurationApplied", Status: "False", Reason: "Refused", Message: "in force", LastTransitionTime: metav1.NewTime(at(10, 0, 0))}
				s.Conditions[2] = notReady("NotReady", "gone")
				s.Config = nodeqosv1alpha1.ConfigStatus{Error: "gold.yaml:1: no"}
			})},
		"other class files have another time": {
			state: state(others), before: published(), now: at(10, 0, 1),
			want: with(func(s *nodeqosv1alpha1.NodeQOSResourcesStatus) {
				ten := metav1.NewTime(at(10, 0, 0))
				s.Config = nodeqosv1alpha1.ConfigStatus{Hash: "def", LoadedAt: &ten}
			})},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := desiredStatus(test.state, test.before, test.now)
			if ok == test.none {
				t.Fatalf("there is a status to publish: %t, want %t", ok, !test.none)
			}
			if test.none {
				return
			}
			// The test compares the JSON that the API server gets.
			if diff := cmp.Diff(text(t, test.want), text(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func text(t *testing.T, s nodeqosv1alpha1.NodeQOSResourcesStatus) string {
	t.Helper()
	return string(must.Get(json.MarshalIndent(s, "", " "))(t))
}

func TestConditions(t *testing.T) {
	reported := []*qosv1alpha1.Condition{{Type: "A", Healthy: true, Reason: "First"}, {Type: "B", Reason: "Second"}, {Type: "A", Healthy: true, Reason: "Third"}}
	got := conditions(reported, nil, at(8, 0, 0))
	t.Run("a type that is reported twice is published once, or the API server would reject all", func(t *testing.T) {
		if len(got) != 2 || got[0].Type != "B" || got[1].Reason != "Third" {
			t.Errorf("got %v", got)
		}
	})
	t.Run("the condition Held is unknown if nothing is measured", func(t *testing.T) {
		got := conditions([]*qosv1alpha1.Condition{{Type: qos.ConditionHeld, Healthy: true, Reason: qos.ReasonNotMeasured}}, nil, at(8, 0, 0))
		if len(got) != 1 || got[0].Status != metav1.ConditionUnknown {
			t.Errorf("got %v", got)
		}
	})
	t.Run("a condition without a time gets the present time", func(t *testing.T) {
		if !got[0].LastTransitionTime.Time.Equal(at(8, 0, 0)) {
			t.Errorf("the time is %v, want 8:00", got[0].LastTransitionTime)
		}
	})
}

// TestLongTextsAreCutAtACharacter cuts texts to 8 bytes. An ellipsis has three bytes, and ä has two.
func TestLongTextsAreCutAtACharacter(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a short text stays":                       {"12345678", "12345678"},
		"a long text ends in an ellipsis":          {"123456789", "12345…"},
		"no character is cut in two":               {"1234äääää", "1234…"},
		"invalid UTF-8 is replaced, as JSON needs": {"a\xffb", "a\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cut(test.text, 8); got != test.want || !utf8.ValidString(got) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// crowd returns the state of a node with the given number of pods, and of containers in each pod. Each container has a
// class of each resource. The names have the given length.
func crowd(pods, containers, resources, name int) nodecache.State {
	long := func(i int) string { return fmt.Sprintf("%0*d", name, i) }
	s := &qosv1alpha1.StatusResponse{Resources: &qosv1alpha1.ResourcesInfo{}}
	var assigned []*qosv1alpha1.Assignment
	for r := range resources {
		s.Resources.ContainerQosResources = append(s.Resources.ContainerQosResources, &qosv1alpha1.QOSResourceInfo{
			Name: fmt.Sprintf("k8s.io/r%d", r), Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "gold", InUse: uint64(pods * containers)}}})
		assigned = append(assigned, &qosv1alpha1.Assignment{Name: fmt.Sprintf("k8s.io/r%d", r), Class: "gold", Source: qosv1alpha1.Source_SOURCE_ALLOCATED})
	}

	list := &qosv1alpha1.ListAssignmentsResponse{}
	for p := range pods {
		pod := &qosv1alpha1.PodAssignments{Uid: long(p), Namespace: long(0), Name: long(p)}
		for c := range containers {
			pod.Containers = append(pod.Containers, &qosv1alpha1.ContainerAssignments{Name: long(c), QosResources: assigned})
		}
		list.Pods = append(list.Pods, pod)
	}

	return nodecache.State{Status: s, Latest: s, Assignments: list}
}

func TestTheStatusOfAFullNodeIsSmallEnough(t *testing.T) {
	for name, test := range map[string]struct {
		state nodecache.State
		bytes int  // the maximum size
		all   bool // no holder is left out
	}{
		"250 pods of 4 containers with usual names are all listed":      {crowd(250, 4, 2, 30), 400_000, true},
		"with the longest names, some holders are left out":             {crowd(250, 4, 4, 63), 600_000, false},
		"of more than a thousand holders of a class, some are left out": {crowd(600, 2, 1, 10), 150_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := desiredStatus(test.state, nodeqosv1alpha1.NodeQOSResourcesStatus{}, at(8, 0, 0))
			data := must.Get(json.Marshal(got))(t)

			if len(data) > test.bytes {
				t.Errorf("the status has %d bytes, want at most %d", len(data), test.bytes)
			}

			var omitted int64
			for _, r := range got.QOSResources.ContainerQOSResources {
				class := r.Classes[0]
				if int64(len(class.Holders))+class.HoldersOmitted != class.InUse || len(class.Holders) > 1000 {
					t.Errorf("%s lists %d holders and omits %d, but %d slots are in use", r.Name, len(class.Holders), class.HoldersOmitted, class.InUse)
				}
				omitted += class.HoldersOmitted
			}

			if (omitted == 0) != test.all {
				t.Errorf("%d holders are omitted, want that all are listed: %t", omitted, test.all)
			}
		})
	}

	t.Run("of more than a thousand foreign settings, some are left out", func(t *testing.T) {
		s := crowd(600, 2, 1, 10)
		of := s.Assignments.Pods[0].Containers[0].QosResources[0] // shared by all containers
		of.Class, of.Foreign = "", "resctrl group batch"
		got, _ := desiredStatus(s, nodeqosv1alpha1.NodeQOSResourcesStatus{}, at(8, 0, 0))
		if r := got.QOSResources.ContainerQOSResources[0]; len(r.Foreign) != 1000 || r.ForeignOmitted != 200 {
			t.Errorf("%d settings are listed and %d omitted, want 1000 and 200", len(r.Foreign), r.ForeignOmitted)
		}
	})
	t.Run("long texts of class files are cut", func(t *testing.T) {
		s := state(status(at(8, 0, 0)))
		s.Status.Config.LastError = strings.Repeat("x", 1<<20)
		got, _ := desiredStatus(s, nodeqosv1alpha1.NodeQOSResourcesStatus{}, at(8, 0, 0))
		if len(text(t, got)) > 10_000 {
			t.Error("the status has more than 10,000 bytes")
		}
	})
}
