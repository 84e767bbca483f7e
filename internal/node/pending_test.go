// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// wantRefused wants these to be told as refused: "pod reason", or "pod/container reason".
func (f *fixture) wantRefused(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, r := range f.Refused() {
		who := r.PodName
		if r.Owner.Container != "" {
			who += "/" + r.Owner.Container
		}
		got = append(got, who+" "+r.Reason)
		if !strings.Contains(r.Message, "it was created while qos-nri-plugin was not connected to the runtime, and runs without") {
			t.Errorf("refused with %q", r.Message)
		}
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("refused: %q, want %q", got, want)
	}
}

// owing is a node on which two containers were created while the plugin was away, for a class of one; the second, of pod b, runs without.
func owing(t *testing.T) (f *fixture, first, second state.Existing) {
	t.Helper()
	f = newFixture(t)
	first = running(pod("a", asking(cache+"=gold")), container("c1"))
	second = running(pod("b", asking(cache+"=gold,"+disk+"=fast")), container("c2"))
	f.Synchronize(nil, []state.Existing{first, second})
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", cache, "gold/pod")
	f.wantClass(t, "c2", cache, "bronze/default")
	f.wantRefused(t, "b/main ClassFull")
	return f, first, second
}

func TestWhatRunsWithoutTheClassesThatItAsksForIsToldAndGetsThemOnceThereIsRoom(t *testing.T) {
	f, first, second := owing(t)
	f.Repair(t.Context())
	f.wantRefused(t, "b/main ClassFull")
	if got := f.Status().Refusals["ClassFull"]; got != 1 {
		t.Errorf("it is counted %d times", got)
	}
	f.Synchronize(nil, []state.Existing{first, second}) // the runtime restarts
	f.Reconcile(t.Context())
	f.wantRefused(t, "b/main ClassFull")

	f.Stop("c1")
	f.Repair(t.Context())
	f.wantClass(t, "c2", cache, "gold/pod")
	f.wantClass(t, "c2", disk, "fast/pod")
	f.wantRefused(t)
	if _, err := f.run(t, pod("c", asking(cache+"=gold")), container("c3")); err == nil {
		t.Error("another one got the class of one")
	}
}

func TestARefusalOfWhatRunsLastsAsLongAsItRuns(t *testing.T) {
	f, _, _ := owing(t)
	f.Stop("c2")
	f.wantRefused(t)
	f.Stop("c1")
	f.Repair(t.Context())
	if used := f.Status().Resources[0].InUse["gold"]; used != 0 {
		t.Errorf("%d have the class, and nobody runs", used)
	}
}

func TestARefusalOfWhatRunsIsNotForgotten(t *testing.T) {
	f, c := timed(t)
	p, ctr := wanting("a", "a1", disk+"=none-such")
	f.Synchronize(nil, []state.Existing{running(p, ctr)})
	for range 5 {
		f.Repair(t.Context())
		f.ExpireRefused()
		f.wantRefused(t, "a/main UnknownClass")
		c.time = c.time.Add(6 * time.Minute)
	}
}

func TestWhatRunsWithoutItsClassesKeepsWhatItIsChangedTo(t *testing.T) {
	f, _, _ := owing(t)
	f.mustUpdate(t, classes.Owner{PodUID: "uid-b", Container: "main"}, map[string]string{cache: "silver"})
	f.Repair(t.Context())
	f.wantClass(t, "c2", cache, "silver/update")
	f.wantClass(t, "c2", disk, "fast/pod")
	f.wantRefused(t)
	f.Stop("c1")
	f.Repair(t.Context())
	f.wantClass(t, "c2", cache, "silver/update")
}

func TestWhatRunsWithoutAClassThatIsNotThereGetsItWithTheClassFiles(t *testing.T) {
	f := newFixture(t)
	p := pod("a", asking(cache+"=late"))
	f.Synchronize(nil, []state.Existing{running(p, container("c1"))})
	f.Reconcile(t.Context())
	f.wantRefused(t, "a/main UnknownClass")
	late := strings.NewReplacer("{name: bronze}]", "{name: bronze}, {name: late}]", "silver, bronze]", "silver, bronze, late]").Replace(files)
	f.mustConfigure(t, late)
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", cache, "late/pod")
	f.wantRefused(t)
}

func TestAPodThatRunsWithoutItsClassGetsItOnceThereIsRoom(t *testing.T) {
	f := bounded(t)
	f.Synchronize([]classes.Holder{sandbox("a", "a-1"), sandbox("b", "b-1")}, nil)
	f.Reconcile(t.Context())
	f.wantRefused(t, "b ClassFull")
	f.Stop("a-1")
	f.Repair(t.Context())
	if got := f.backends[net].Enforced(); got["b-1"] != "high" {
		t.Errorf("in their classes: %v", got)
	}
	f.wantRefused(t)
}

func TestWhatIsKeptOfARequestIsBounded(t *testing.T) {
	f := newFixture(t)
	p := pod("a", asking(cache+"=none-such"))
	p.PodAnnotations["other"] = strings.Repeat("x", 1<<20)
	q := pod("b", asking(strings.Repeat("x", 1<<20)))
	f.Synchronize(nil, []state.Existing{running(p, container("c1")), running(q, container("c2"))})
	if got := len(f.Refused()); got != 2 {
		t.Errorf("%d are told", got)
	}
	f.Repair(t.Context())
	for _, r := range f.Refused() {
		if len(r.Message) > 1<<10 {
			t.Errorf("%d bytes are told", len(r.Message))
		}
	}
}
