// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/recommend"
)

// recommends returns the only recommendation for the container of a pod.
func (b *blamed) recommends(t *testing.T, pod string) recommend.Recommendation {
	t.Helper()
	got, err := b.Recommend(t.Context(), history.Selection{Namespace: "ns", Pod: pod})
	if err != nil || len(got.Recommendations) != 1 {
		t.Fatalf("%s: %+v, %v", pod, got, err)
	}
	return got.Recommendations[0]
}

// wantRecommended compares a recommendation with its outcome, class and bounds in MB/s.
func wantRecommended(t *testing.T, got recommend.Recommendation, want string) {
	t.Helper()
	text := fmt.Sprint(got.Outcome, " ", got.Class)
	for _, f := range got.Figures {
		text += fmt.Sprintf(" %s %s %g", f.Name, f.Series.Part, f.Bound/1e6)
	}
	if text != want || got.Problem != "" {
		t.Errorf("recommended is %q (%s), want %q", text, got.Problem, want)
	}
}

// TestANodeRecommendsTheSmallestClassThatFits lets containers write at different rates: one without a class, one that its class
// holds, one that leaves most of its class over, one that writes more than any class allows, and one that does nothing.
func TestANodeRecommendsTheSmallestClassThatFits(t *testing.T) {
	b := newBlamed(t, blamedFiles)
	free, bound, over := b.runs(t, "free", ""), b.runs(t, "bound", "blockio=slow"), b.runs(t, "over", "blockio=fast")
	large, idle := b.runs(t, "large", ""), b.runs(t, "idle", "")
	b.records(t, 25, map[string]uint64{free: 60, bound: 10, over: 4, large: 900, idle: 0}, bound)

	got := b.recommends(t, "free")
	wantRecommended(t, got, "fits medium ThrottleWriteBps sda 100")
	if got.Container.Name != "main" || got.Resource != "k8s.io/blockio" || got.Points != 24 || got.To.Sub(got.From) != 24*historyInterval || !got.Mutable || got.Full ||
		got.Held || got.Left < 0.39 || got.Left > 0.41 {
		t.Errorf("recommended is %+v", got)
	}
	got = b.recommends(t, "bound")
	wantRecommended(t, got, "fits medium ThrottleWriteBps sda 100")
	if !got.Held || got.Present != "slow" {
		t.Errorf("recommended is %+v", got)
	}
	got = b.recommends(t, "over")
	wantRecommended(t, got, "fits slow ThrottleWriteBps sda 10")
	if !got.Full || got.Held {
		t.Errorf("recommended is %+v", got)
	}
	got = b.recommends(t, "large")
	wantRecommended(t, got, "add  ThrottleWriteBps sda 1800")
	want := map[string]any{"apiVersion": "qos.noderesource.dev/v1alpha1", "kind": "QOSClassConfig", "resources": []any{map[string]any{
		"name": "k8s.io/blockio", "classes": []any{map[string]any{"name": "main-fit"}},
		"blockio": map[string]any{"Classes": map[string]any{"main-fit": []any{map[string]any{"Devices": []any{"/dev/sda"}, "ThrottleWriteBps": "1800M"}}}},
	}}}
	if diff := cmp.Diff(want, got.ClassFile); diff != "" {
		t.Errorf("class file (-want +got):\n%s", diff)
	}
	wantRecommended(t, b.recommends(t, "idle"), "unused ")
}

// TestValuesOfAnotherClassDoNotCount changes the class of a container, and then the limits of the class.
func TestValuesOfAnotherClassDoNotCount(t *testing.T) {
	b := newBlamed(t, blamedFiles)
	db := b.runs(t, "db", "blockio=medium")
	b.records(t, 25, map[string]uint64{db: 100}, db)
	if got := b.recommends(t, "db"); !got.Held || got.Class != "fast" {
		t.Errorf("before, recommended is %+v", got)
	}

	for _, change := range []struct {
		name string
		make func()
	}{
		{"another class", func() {
			b.mustUpdate(t, qos.Subject{PodUID: "uid-db", Container: "main"}, map[string]string{"k8s.io/blockio": "fast"})
		}},
		{"other limits", func() { b.mustConfigure(t, strings.ReplaceAll(blamedFiles, "300M", "299M")) }},
	} {
		change.make()
		b.records(t, 10, map[string]uint64{db: 4})
		got := b.recommends(t, "db")
		if !strings.HasPrefix(got.Problem, "too little is recorded: 2m30s since") || !strings.HasSuffix(got.Problem, "5m0s are needed; ask again in 2m30s") {
			t.Errorf("%s: %+v", change.name, got)
		}
		b.records(t, 10, map[string]uint64{db: 4})
		wantRecommended(t, b.recommends(t, "db"), "fits slow ThrottleWriteBps sda 10")
	}
}

// TestAClassOfPodsMustFitAllContainersOfThePod asks about a pod with two containers, of which one writes what fits into the class slow.
func TestAClassOfPodsMustFitAllContainersOfThePod(t *testing.T) {
	b := newBlamed(t, strings.Replace(blamedFiles, "k8s.io/blockio", "vendor.example/pods\n  scope: pod", 1))
	p := pod("db", nil)
	p.CgroupsPath = "/kubepods/poddb"
	b.mustRunPod(t, p)
	first := b.runs(t, "db", "")
	second := container("c-second")
	second.Container, second.CgroupsPath, second.PID = "second", "/kubepods/poddb/c-second", 1
	b.host.Cgroups().AddCgroup(second.CgroupsPath)
	if _, err := b.run(t, p, second); err != nil {
		t.Fatal(err)
	}
	b.records(t, 25, map[string]uint64{first: 4, second.CgroupsPath: 30})

	got := b.recommends(t, "db")
	wantRecommended(t, got, "fits medium ThrottleWriteBps sda 100")
	if got.Container.Name != "" || got.Container.PodUID != "uid-db" || got.Figures[0].Need != 34e6 {
		t.Errorf("recommended is %+v", got)
	}
	if _, err := b.Recommend(t.Context(), history.Selection{Namespace: "ns", Pod: "db", Container: "main"}); !errors.Is(err, recommend.ErrNoClass) {
		t.Errorf("of one container: %v, want ErrNoClass", err)
	}
}

func TestWhatCannotBeRecommendedIsOneLine(t *testing.T) {
	b := newBlamed(t, blamedFiles)
	want := func(name string, s history.Selection, kind error, text string) {
		t.Helper()
		if _, err := b.Recommend(t.Context(), s); !errors.Is(err, kind) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error is %v, want %v with %q", name, err, kind, text)
		}
	}
	db := b.runs(t, "db", "")
	selection := history.Selection{Namespace: "ns", Pod: "db"}
	want("nothing yet", selection, history.ErrUnknown, "pod ns/db has no running container on this node, or it has just started")
	b.records(t, 2, map[string]uint64{db: 1})
	if got := b.recommends(t, "db"); got.Problem != "too little is recorded: 15s since the container started or its class changed, and 5m0s are needed; ask again in 4m45s" {
		t.Errorf("after two samples: %+v", got)
	}
	b.records(t, 30, map[string]uint64{db: 1})
	want("no pod", history.Selection{}, history.ErrInvalid, "name the pod")
	want("no namespace", history.Selection{Pod: "db"}, history.ErrInvalid, "name the namespace of pod")
	want("an unknown container", history.Selection{Namespace: "ns", Pod: "db", Container: "x"}, history.ErrUnknown, `pod ns/db has no container "x"`)

	b.mustConfigure(t, `{apiVersion: qos.noderesource.dev/v1alpha1, kind: QOSClassConfig, resources: [
  {name: k8s.io/blockio, blockio: {Classes: {heavy: [{Weight: 500}]}}}]}`)
	b.records(t, 30, map[string]uint64{db: 1})
	want("only weights", selection, recommend.ErrNoClass, "no class of this node limits what is recorded: add one with a limit")

	b.fixture.restart(t)
	want("off", selection, recommend.ErrNotRecorded, "--history-interval=15s")
}
