// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
)

func snapshotOf(pods ...*qosv1alpha1.PodAssignments) *snapshot {
	return newSnapshot(nodecache.State{Assignments: &qosv1alpha1.ListAssignmentsResponse{Pods: pods}})
}

func TestTheNewestClassChangesOfAPodAreKept(t *testing.T) {
	c := classChanges{byPod: map[podevents.Pod][]podevents.Record{}}
	state := func(class string) *snapshot {
		return snapshotOf(assigned(ctr("main", "1", has("k8s.io/rdt", class, none))))
	}

	before := state("class-0")
	for i := range 1000 {
		after := state(fmt.Sprintf("class-%d", i+1))
		c.add(before, after)
		before = after
	}

	kept := c.take(keyOf(assigned()))
	if len(kept) != maxChanges || kept[maxChanges-1].Message != "main: k8s.io/rdt class-999 -> class-1000" {
		t.Errorf("%d changes are kept, the last is %v; want the newest %d", len(kept), kept[len(kept)-1], maxChanges)
	}
}

func TestClassChangesBetweenTwoStates(t *testing.T) {
	before := assigned(ctr("main", "1", has("k8s.io/rdt", "gold", container), has("k8s.io/blockio", "", none)))
	for _, c := range []struct {
		name  string
		after *qosv1alpha1.ContainerAssignments
		want  string
	}{
		{"another class is a change", ctr("main", "1", has("k8s.io/rdt", "silver", container), has("k8s.io/blockio", "", none)), "main: k8s.io/rdt gold -> silver"},
		{"the system default is a change", ctr("main", "1", has("k8s.io/rdt", "", none)), "main: k8s.io/rdt gold -> system default"},
		{"two changes of a container are in one message", ctr("main", "1", has("k8s.io/rdt", "silver", container), has("k8s.io/blockio", "fast", container)), "main: k8s.io/rdt gold -> silver, k8s.io/blockio system default -> fast"},
		{"another source of the same class is no change", ctr("main", "1", has("k8s.io/rdt", "gold", allocated)), ""},
		{"another container of the same name is no change", ctr("main", "2", has("k8s.io/rdt", "silver", container)), ""},
		{"a resource that is new or gone is no change", ctr("main", "1", has("vendor.example/new", "a", container)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, record := range changed(before, assigned(c.after), time.Now()) {
				got = append(got, record.Message)
			}
			if strings.Join(got, "|") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestTheDefaultClassOfAnExistingContainerIsNotReportedAsAChange uses the plugin's own container, which is created before
// the plugin runs.
func TestTheDefaultClassOfAnExistingContainerIsNotReportedAsAChange(t *testing.T) {
	in := func(class string, source qosv1alpha1.Source) *qosv1alpha1.PodAssignments {
		return assigned(ctr("plugin", "1", has("k8s.io/rdt", class, source)))
	}
	found, byDefault := in("", qosv1alpha1.Source_SOURCE_ADOPTED), in("bronze", standard)
	for _, c := range []struct {
		name          string
		before, after *qosv1alpha1.PodAssignments
		changes       int
	}{
		{"a container that was found gets the default class", found, byDefault, 0},
		{"a container with the default class is found again, after a new registration of the plugin", byDefault, found, 0},
		{"a container that was found gets a class that it requests", found, in("gold", container), 1},
		{"a container leaves the default class", byDefault, in("", none), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := changed(c.before, c.after, time.Now()); len(got) != c.changes {
				t.Errorf("the changes are %v, want %d", got, c.changes)
			}
		})
	}
}

func TestClassChangesAreKeptUntilThePodIsReconciledOrDeleted(t *testing.T) {
	state := func(class string) *snapshot {
		return snapshotOf(assigned(ctr("main", "1", has("k8s.io/rdt", class, container))))
	}

	c := classChanges{byPod: map[podevents.Pod][]podevents.Record{}}
	first, second, third := state("gold"), state("silver"), state("bronze")
	c.add(nil, first)
	c.add(first, second)
	c.add(second, third)
	var got []string
	for _, record := range c.take(keyOf(assigned())) {
		got = append(got, record.Message)
	}

	if want := []string{"main: k8s.io/rdt gold -> silver", "main: k8s.io/rdt silver -> bronze"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if again := c.take(keyOf(assigned())); len(again) != 0 {
		t.Errorf("a second take returned %v, want nothing", again)
	}

	c.add(third, first)
	c.add(first, &snapshot{ready: true}) // the pod is deleted
	if len(c.byPod) != 0 {
		t.Errorf("changes of a deleted pod are kept: %v", c.byPod)
	}
}
