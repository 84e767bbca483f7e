// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// evicting has class files in which all resources except disk have onClassRemoved: evict.
var evicting = strings.NewReplacer(
	"- name: test.example/cache\n", "- name: test.example/cache\n  onClassRemoved: evict\n",
	"- name: test.example/net\n", "- name: test.example/net\n  onClassRemoved: evict\n",
).Replace(files)

// without returns the class files of the variable evicting with replaced texts. The arguments are pairs of old and new text.
func without(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(evicting) }

// Class files without some classes or resources.
var (
	noGold = without("{name: gold, capacity: 1}, ", "", "names: [gold, silver, bronze]", "names: [silver, bronze]")
	noHigh = without("[high, low]", "[low]")
	noDisk = without("[{name: fast, capacity: 2}, {name: slow}]", "[{name: slow}]", "[fast, slow]", "[slow]")
	noNet  = withoutNet(evicting)
)

// withoutNet removes the last resource, net, from class files.
func withoutNet(text string) string {
	text, _, _ = strings.Cut(text, "- name: test.example/net")
	return text
}

// wantEvicted compares the eviction targets with lines of pod, container, resource and class.
func (f *fixture) wantEvicted(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	for _, e := range f.Evictions() {
		got = append(got, strings.Join([]string{e.PodName, e.Subject.Container, e.Resource, e.Class}, " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// TestHoldersThatRequestedARemovedClassAreEvictionTargets changes the class files. A holder becomes a target only if it
// requested the removed class itself, and if the class file has onClassRemoved: evict.
func TestHoldersThatRequestedARemovedClassAreEvictionTargets(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, evicting)
	f.mustRun(t, pod("requests", requesting("test.example/cache=gold,test.example/disk=fast")), container("c1"))
	f.mustRun(t, pod("requests-another", requesting("test.example/cache=silver")), container("c2"))
	f.mustRun(t, pod("requests-too", requesting("test.example/cache=silver")), container("c3"))
	f.mustRun(t, pod("by-default", nil), container("c4"))
	f.mustRunPod(t, pod("whole", requesting("test.example/net=high")))
	f.wantEvicted(t, "before a class is removed")
	for _, test := range []struct {
		name, files string
		want        []string
	}{
		{"a class is removed", noGold, []string{"requests main test.example/cache gold"}},
		{"a class of pods is removed", noHigh, []string{"whole  test.example/net high"}},
		{"a class of a resource that drains is removed", noDisk, nil},
		{"a resource that evicts is removed", noNet, []string{"whole  test.example/net high"}},
		{"the class files are loaded again", evicting, nil},
		{"classes have other names", without("gold", "platinum"), []string{"requests main test.example/cache gold"}},
		{"the default class is removed", without("bronze", "iron"), nil},
		{"the class is removed, and the resource drains now", strings.ReplaceAll(noGold, "evict", "drain"), nil},
		{"capacity is below use", without("{name: silver}", "{name: silver, capacity: 1}"), nil},
	} {
		f.mustConfigure(t, test.files)
		f.wantEvicted(t, test.name, test.want...)
		f.Reconcile(t.Context())
		f.wantEvicted(t, test.name+", and defaults are followed", test.want...)
		f.mustConfigure(t, evicting)
		f.wantEvicted(t, "after: "+test.name)
	}
}

func TestAnEvictionNamesTheHolderAndTheReason(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, evicting)
	p := pod("a", requesting("test.example/cache=gold,test.example/net=high"))
	f.mustRunPod(t, p)
	f.mustRun(t, p, container("c1"))
	f.mustConfigure(t, withoutNet(noGold))
	want := []state.Eviction{{
		PodNamespace: "ns", PodName: "a", Resource: net, Class: "high", Reason: "ClassRemoved",
		Message: `pod ns/a: resource test.example/net and its class "high" were removed from the class files, and onClassRemoved was evict`,
	}, {
		PodNamespace: "ns", PodName: "a", Resource: cache, Class: "gold", Reason: "ClassRemoved",
		Message: `pod ns/a container main: class "gold" of test.example/cache was removed from the class files, and its resource has onClassRemoved: evict`,
	}}

	want[0].Subject.PodUID, want[1].Subject = "uid-a", ownerA
	if diff := cmp.Diff(want, f.Evictions()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAContainerIsEvictedIfTheClassItWasChangedToIsRemoved(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, evicting)
	f.mustRun(t, pod("a", nil), container("c1"))
	f.mustUpdate(t, ownerA, map[string]string{cache: "gold"})
	f.mustConfigure(t, noGold)
	f.wantEvicted(t, "the class that it was changed to is removed", "a main test.example/cache gold")
	f.mustUpdate(t, ownerA, map[string]string{cache: "silver"})
	f.wantEvicted(t, "it was changed to another class")
}

func TestAContainerAndItsPredecessorAreOneEvictionTarget(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, evicting)
	p := pod("a", requesting("test.example/cache=gold"))
	f.mustRun(t, p, container("c1"))
	f.mustRun(t, p, container("c2"))
	f.mustConfigure(t, noGold)
	f.wantEvicted(t, "both are tracked", "a main test.example/cache gold")
	f.Stop("c1")
	f.wantEvicted(t, "the newer one runs", "a main test.example/cache gold")
	f.Stop("c2")
	f.wantEvicted(t, "none runs")
}

func TestClassFilesThatCannotBeAppliedCauseNoEvictions(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, evicting)
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c1"))
	f.backends[disk].Fail("apply", errors.New("no such device"))
	if err := f.configure(t, noGold); err == nil {
		t.Fatal("no error")
	}
	f.wantEvicted(t, "after a failed change of the configuration")
}

func TestARestartKeepsEvictionsOfClasses(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, evicting)
	p := pod("a", requesting("test.example/cache=gold"))
	c := f.mustRun(t, p, container("c1"))
	f.restart(t)
	f.mustConfigure(t, noGold)
	f.Synchronize([]classes.Holder{p}, []state.Existing{running(p, c)})
	f.wantEvicted(t, "the class was removed while the plugin was away", "a main test.example/cache gold")
}

// TestWithoutAnyClassFileThereAreNoEvictions removes all class files. As a comparison, it then has a class file without
// resources, for which the container is evicted.
func TestWithoutAnyClassFileThereAreNoEvictions(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, strings.ReplaceAll(files, "  defaultClass: bronze", "  onClassRemoved: evict"))
	f.mustRun(t, pod("a", requesting("test.example/cache=gold")), container("c-a"))
	for _, test := range []struct {
		files   []string
		targets int
	}{{nil, 0}, {[]string{"a.yaml"}, 1}} {
		if err := f.Configure(t.Context(), classes.FileSet{Config: &classes.Config{}, Files: test.files}); err != nil {
			t.Fatal(err)
		}
		if got := f.Evictions(); len(got) != test.targets {
			t.Errorf("with the files %q, the eviction targets are %v, want %d", test.files, got, test.targets)
		}
	}
}
