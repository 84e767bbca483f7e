// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// sandbox returns a sandbox of a pod that requests class high.
func sandbox(name, id string) classes.Holder {
	p := pod(name, requesting("test.example/net=high"))
	p.ID = id
	return p
}

// bounded returns a fixture in which class high of pods has a capacity of 1.
func bounded(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.configureBounded(t)
	return f
}

func (f *fixture) configureBounded(t *testing.T) {
	t.Helper()
	const pods = "  scope: pod\n"
	f.mustConfigure(t, strings.ReplaceAll(files, pods, pods+"  classes: [{name: high, capacity: 1}, {name: low}]\n"))
}

// wantFull runs another pod. The pod must be refused, and must not get a slot or a class.
func (f *fixture) wantFull(t *testing.T) {
	t.Helper()
	const want = `pod ns/other: class "high" of test.example/net is full: 1 of 1 in use; available: low`
	err := f.runPod(t, sandbox("other", "other-1"))
	if !errors.Is(err, classes.ErrClassFull) || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	if got := f.Status().Resources[2].InUse["high"]; got != 1 {
		t.Errorf("%d slots of class high are in use, want 1", got)
	}
	if got := f.backends[net].Enforced()["other-1"]; got != "" {
		t.Errorf("the refused pod is in class %q", got)
	}
}

func TestAFullClassOfPodsIsRefusedToOtherPodsOnly(t *testing.T) {
	f := bounded(t)
	f.mustRunPod(t, sandbox("a", "a-1"))
	f.wantFull(t)
	f.mustRunPod(t, sandbox("a", "a-2")) // the kubelet makes a new sandbox before it removes the dead one
	f.wantFull(t)
	f.Stop("a-1")
	f.wantFull(t)
	f.Stop("a-2")
	f.mustRunPod(t, sandbox("other", "other-1"))
}

func TestAPodIsNotUpdatedIntoAFullClass(t *testing.T) {
	f := bounded(t)
	f.mustRunPod(t, sandbox("a", "a-1"))
	low := pod("b", requesting("test.example/net=low"))
	f.mustRunPod(t, low)
	if err := f.Update(t.Context(), qos.Subject{PodUID: "uid-b"}, map[string]string{net: "high"}); !errors.Is(err, classes.ErrClassFull) {
		t.Errorf("error is %v, want ErrClassFull", err)
	}
	f.mustUpdate(t, qos.Subject{PodUID: "uid-a"}, map[string]string{net: "low"})
	if err := f.Update(t.Context(), qos.Subject{PodUID: "uid-b"}, map[string]string{net: "high"}); err != nil {
		t.Errorf("the slot that a change freed is not available: %v", err)
	}
}

// TestPodsThatWereCreatedWithoutThePluginGetAClassIfThereIsRoom uses two pods that request a class of capacity 1. In
// the kernel, either no pod or the second pod is in the class. The name of each case says which pod gets the class.
func TestPodsThatWereCreatedWithoutThePluginGetAClassIfThereIsRoom(t *testing.T) {
	for name, test := range map[string]struct {
		in   func(t *testing.T, f *fixture)
		want string
	}{
		"the first that is listed":                               {func(*testing.T, *fixture) {}, "a-1"},
		"the one that was in the class before":                   {func(t *testing.T, f *fixture) { f.mustRunPod(t, sandbox("b", "b-1")) }, "b-1"},
		"the first that is listed, if the kernel shows no class": {func(_ *testing.T, f *fixture) { f.backends[net].Blur(true) }, "a-1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := bounded(t)
			test.in(t, f)
			f.restart(t)
			f.configureBounded(t)
			for range 2 { // the second iteration simulates a restart of the runtime
				f.Synchronize([]classes.Holder{sandbox("a", "a-1"), sandbox("b", "b-1")}, nil)
				f.Reconcile(t.Context())
				f.wantFull(t)
				if diff := cmp.Diff(map[string]string{test.want: "high"}, f.backends[net].Enforced()); diff != "" {
					t.Errorf("classes of pods (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestARefusedPodIsReportedInTheClassThatItWasFoundIn finds two pods in class low that request class high, of capacity 1. After the first
// look at each pod, the kernel shows no classes any more. So pod a, which gets the slot of high, is not moved yet, and pod b is refused.
func TestARefusedPodIsReportedInTheClassThatItWasFoundIn(t *testing.T) {
	f := bounded(t)
	for _, name := range []string{"a", "b"} {
		p := pod(name, requesting("test.example/net=low"))
		p.ID = name + "-1"
		f.mustRunPod(t, p)
	}
	f.restart(t)
	f.configureBounded(t)
	f.Synchronize([]classes.Holder{sandbox("a", "a-1"), sandbox("b", "b-1")}, nil)
	looks := 0
	f.backends[net].Before(func() {
		if looks++; looks > 2 {
			f.backends[net].Fail("observe", errors.New("input/output error"))
		}
	})
	f.Reconcile(t.Context())
	for _, id := range []string{"a-1", "b-1"} {
		f.wantClass(t, id, net, "low/adopted")
	}
	f.wantRefused(t, "b ClassFull")
}

// TestARefusedPodStaysReportedInItsOtherClasses refuses class high of net to pod b, because pod a has its only slot. Pod b stays reported
// in class slow of disk, in which the kernel has shown it.
func TestARefusedPodStaysReportedInItsOtherClasses(t *testing.T) {
	f := newFixture(t)
	configure := func() {
		f.mustConfigure(t, strings.NewReplacer(
			"disk\n", "disk\n  scope: pod\n", "  scope: pod\n", "  scope: pod\n  classes: [{name: high, capacity: 1}, {name: low}]\n",
		).Replace(files))
	}
	configure()
	requests := func(name, net string) classes.Holder {
		return pod(name, requesting("test.example/net="+net+",test.example/disk=slow"))
	}
	f.mustRunPod(t, requests("a", "high"))
	f.mustRunPod(t, requests("b", "low"))
	f.restart(t)
	configure()
	f.Synchronize([]classes.Holder{requests("a", "high"), requests("b", "high")}, nil)
	looks := 0 // the kernel shows the class of disk of each pod once, and no classes of disk after that
	f.backends[disk].Before(func() {
		if looks++; looks > 2 {
			f.backends[disk].Fail("observe", errors.New("input/output error"))
		}
	})
	f.Reconcile(t.Context())
	f.wantRefused(t, "b ClassFull")
	f.wantClass(t, "sandbox-b", disk, "slow/adopted")
}

// TestAPodWhoseClassIsUnclearComesBeforeOneInAnotherClass finds pod a in class low, and the kernel does not show the class of pod b. Both
// request class high, of capacity 1.
func TestAPodWhoseClassIsUnclearComesBeforeOneInAnotherClass(t *testing.T) {
	f := bounded(t)
	low := sandbox("a", "a-1")
	low.PodAnnotations = requesting("test.example/net=low")
	f.mustRunPod(t, low)
	f.restart(t)
	f.configureBounded(t)
	f.Synchronize([]classes.Holder{sandbox("a", "a-1"), sandbox("b", "b-1")}, nil)
	looks := 0 // the second look is that at pod b
	f.backends[net].Before(func() {
		looks++
		f.backends[net].Blur(looks == 2)
	})
	f.Reconcile(t.Context())
	f.wantRefused(t, "a ClassFull") // b gets the slot, because it may be in class high already
}

// TestAPodWithoutACgroupIsReleased covers pods that started before a restart of containerd. When such a pod ends, containerd calls no
// hook. The pods of this test have no class, because no class of this fixture has pod scope.
func TestAPodWithoutACgroupIsReleased(t *testing.T) {
	f, _ := newVolumeFixture(t)
	ended := map[string]bool{}
	f.restart(t, func(o *node.Options) { o.HasCgroup = func(h classes.Holder) bool { return !ended[h.ID] } })
	f.mustConfigure(t, volumeFiles)
	f.Synchronize([]classes.Holder{pod("a", nil), pod("b", nil)}, nil)
	ended["sandbox-a"] = true
	f.Reconcile(t.Context())
	if got := f.Assignments(); len(got) != 1 || got[0].SandboxID != "sandbox-b" {
		t.Errorf("the assignments are %+v, want only those of sandbox-b", got)
	}
}

// TestAChangedPodKeepsItsClassOverARestartWithWrongClassFiles synchronizes a second time after the class files are corrected. This
// happens on a node if the corrected files need other hooks: the plugin then registers again, and the runtime synchronizes it again.
func TestAChangedPodKeepsItsClassOverARestartWithWrongClassFiles(t *testing.T) {
	f := newFixture(t)
	p := pod("a", requesting("test.example/net=high"))
	f.mustRunPod(t, p)
	f.mustUpdate(t, qos.Subject{PodUID: "uid-a"}, map[string]string{net: "low"})
	f.restart(t)
	if err := f.Configure(t.Context(), classes.FileSet{Err: errors.New("a.yaml:3: wrong")}); err == nil {
		t.Fatal("wrong class files are applied")
	}

	f.Synchronize([]classes.Holder{p}, nil)
	f.Reconcile(t.Context())
	f.mustConfigure(t, files)
	f.Synchronize([]classes.Holder{p}, nil)
	f.Reconcile(t.Context())
	if got := f.backends[net].Enforced()[p.ID]; got != "low" {
		t.Errorf("the pod is in class %q", got)
	}
}

// TestADeadSandboxDoesNotChangeTheClassOfItsPod uses a pod with a sandbox that has ended and is not removed yet. The
// runtime lists the dead sandbox before or after the live one, or the live one replaces it.
func TestADeadSandboxDoesNotChangeTheClassOfItsPod(t *testing.T) {
	dead, live := sandbox("a", "dead"), sandbox("a", "live")
	dead.PID = 0
	for name, begin := range map[string]func(t *testing.T, f *fixture){
		"listed first": func(_ *testing.T, f *fixture) { f.Synchronize([]classes.Holder{dead, live}, nil) },
		"listed last":  func(_ *testing.T, f *fixture) { f.Synchronize([]classes.Holder{live, dead}, nil) },
		"replaced": func(t *testing.T, f *fixture) {
			f.mustRunPod(t, dead)
			f.mustRunPod(t, live)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			begin(t, f)
			f.Reconcile(t.Context())
			f.mustUpdate(t, qos.Subject{PodUID: "uid-a"}, map[string]string{net: "low"})
			f.Repair(t.Context())
			f.Stop("dead")
			f.Repair(t.Context())
			if got := f.backends[net].Enforced()["live"]; got != "low" {
				t.Errorf("the pod is in class %q", got)
			}

			pods := f.Assignments()
			if len(pods) != 1 || pods[0].SandboxID != "live" || len(pods[0].Assignments) != 1 || pods[0].Assignments[0].Class != "low" {
				t.Errorf("the assignments are %+v, want only low for the sandbox live", pods)
			}

			f.wantCorrections(t, map[state.Correction]uint64{}) // a second sandbox in another class would be drift
		})
	}
}
