// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/recommend"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// recommends returns the only recommendation for the container of a pod.
func (b *blamed) recommends(t *testing.T, pod string) reports.Recommendation {
	t.Helper()
	got, err := b.Recommend(t.Context(), history.Selection{Namespace: "ns", Pod: pod})
	if err != nil || len(got.Recommendations) != 1 {
		t.Fatalf("%s: %+v, %v", pod, got, err)
	}
	return got.Recommendations[0]
}

// wantRecommended compares a recommendation with its outcome, class and bounds in MB/s.
func wantRecommended(t *testing.T, got reports.Recommendation, want string) {
	t.Helper()
	text := fmt.Sprint(got.Outcome, " ", got.Class)
	for _, f := range got.Figures {
		text += fmt.Sprintf(" %s %s %g", f.Name, f.Part, f.Bound/1e6)
	}
	if text != want || got.Problem != "" {
		t.Errorf("recommended is %q (%s), want %q", text, got.Problem, want)
	}
}

// TestANodeRecommendsTheSmallestClassThatFits lets containers write at different rates: free without a class, bound at the
// limit of its class, modest far below its limit, and idle nothing. The classes allow 10, 100 and 300 MB/s.
func TestANodeRecommendsTheSmallestClassThatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		free, bound, modest := b.runs(t, "free", ""), b.runs(t, "bound", "blockio=slow"), b.runs(t, "modest", "blockio=fast")
		idle := b.runs(t, "idle", "")
		b.records(t, 25, map[string]uint64{free: 60, bound: 10, modest: 4, idle: 0}, bound)

		got := b.recommends(t, "free")
		wantRecommended(t, got, "fits medium ThrottleWriteBps sda 100")
		if got.Name != "main" || got.Resource != "k8s.io/blockio" || !got.Mutable || got.Full || got.Held {
			t.Errorf("recommended is %+v", got)
		}
		if got.Points != 24 || got.To.Sub(got.From) != 24*historyInterval { // the first of 25 readings is only the beginning
			t.Errorf("recommended is %+v, want 24 points", got)
		}
		if math.Abs(got.Left-0.4) > 0.01 { // the rate of 60 leaves 40% of the limit of 100
			t.Errorf("%g of the limit is left, want 0.4", got.Left)
		}
		got = b.recommends(t, "bound")
		wantRecommended(t, got, "fits medium ThrottleWriteBps sda 100")
		if !got.Held || got.Present != "slow" {
			t.Errorf("recommended is %+v, want that the limit of the present class slow was reached", got)
		}
		got = b.recommends(t, "modest")
		wantRecommended(t, got, "fits slow ThrottleWriteBps sda 10")
		if !got.Full || got.Held { // bound has the only slot of slow
			t.Errorf("recommended is %+v, want a full class", got)
		}
		wantRecommended(t, b.recommends(t, "idle"), "unused ")
	})
}

// TestANodeProposesAClassWithTwiceTheUseIfNoneFits has a container that writes more than any class allows.
func TestANodeProposesAClassWithTwiceTheUseIfNoneFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		b.records(t, 25, map[string]uint64{b.runs(t, "large", ""): 900})
		got := b.recommends(t, "large")
		wantRecommended(t, got, "add  ThrottleWriteBps sda 1800")
		want := map[string]any{"apiVersion": "qos.noderesource.dev/v1alpha1", "kind": "QOSClassConfig", "resources": []any{map[string]any{
			"name": "k8s.io/blockio", "classes": []any{map[string]any{"name": "main-fit"}},
			"blockio": map[string]any{"Classes": map[string]any{"main-fit": []any{map[string]any{"Devices": []any{"/dev/sda"}, "ThrottleWriteBps": "1800M"}}}},
		}}}
		if diff := cmp.Diff(want, got.ClassFile); diff != "" {
			t.Errorf("class file (-want +got):\n%s", diff)
		}
	})
}

// TestRecommendationsIgnoreTheHistoryBeforeAChangeOfTheClass changes the class of a container, and later the limits of
// the class. A change of another class does not matter.
func TestRecommendationsIgnoreTheHistoryBeforeAChangeOfTheClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			{"other limits", func() { b.loads(t, strings.ReplaceAll(blamedFiles, "300M", "299M")) }},
		} {
			change.make()
			b.records(t, 10, map[string]uint64{db: 4})
			got := b.recommends(t, "db")
			const want = "too little is recorded: 2m30s since the container started or its class changed, and 5m0s are needed; ask again in 2m30s"
			if got.Problem != want {
				t.Errorf("%s: the problem is %q, want %q", change.name, got.Problem, want)
			}
			b.records(t, 10, map[string]uint64{db: 4})
			wantRecommended(t, b.recommends(t, "db"), "fits slow ThrottleWriteBps sda 10")
		}

		b.loads(t, strings.NewReplacer("300M", "299M", "10M", "9M").Replace(blamedFiles)) // 10M is the limit of another class
		wantRecommended(t, b.recommends(t, "db"), "fits slow ThrottleWriteBps sda 9")
	})
}

// loads makes class files live, and enforces changed values, as the agent does.
func (b *blamed) loads(t *testing.T, text string) {
	t.Helper()
	b.mustConfigure(t, text)
	b.Reconcile(t.Context())
}

// newBlamedPod returns a node with classes of pod scope, and its pod "db" without containers.
func newBlamedPod(t *testing.T, annotations map[string]string) (*blamed, classes.Holder) {
	t.Helper()
	b := newBlamed(t, strings.Replace(blamedFiles, "k8s.io/blockio", "vendor.example/pods\n  scope: pod", 1))
	p := pod("db", annotations)
	p.CgroupsPath, p.PodCgroupsPath = "/kubepods/poduid-db", "/kubepods/poduid-db"
	b.host.Cgroups().AddCgroup(p.CgroupsPath)
	b.mustRunPod(t, p)
	return b, p
}

// TestAClassOfPodsMustFitAllContainersOfThePod has a pod with two containers. Class slow would fit one of them alone.
func TestAClassOfPodsMustFitAllContainersOfThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := newBlamedPod(t, nil)
		first, second := b.runs(t, "db", ""), b.runsBeside(t, p, "second")
		b.records(t, 25, map[string]uint64{first: 4, second: 30})

		got := b.recommends(t, "db")
		wantRecommended(t, got, "fits medium ThrottleWriteBps sda 100")
		if got.Name != "" || got.PodUID != "uid-db" || got.Figures[0].Need != 34e6 {
			t.Errorf("recommended is %+v, want the sum of 34 MB/s, for the pod", got)
		}
	})
}

func TestAClassOfPodsIsNotRecommendedForOneContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBlamedPod(t, nil)
		b.records(t, 25, map[string]uint64{b.runs(t, "db", ""): 4})
		_, err := b.Recommend(t.Context(), history.Selection{Namespace: "ns", Pod: "db", Container: "main"})
		const want = "the classes of resource vendor.example/pods limit whole pods; ask for pod ns/db without a container"
		wantOneLine(t, "one container", err, recommend.ErrNoClass, want)
	})
}

// runsBeside starts a further container of a pod, and returns its cgroup.
func (b *blamed) runsBeside(t *testing.T, p classes.Holder, name string) string {
	t.Helper()
	c := container("c-" + name)
	c.Container, c.CgroupsPath, c.PID = name, "/kubepods/pod"+p.PodName+"/c-"+name, 1
	b.host.Cgroups().AddCgroup(c.CgroupsPath)
	if _, err := b.run(t, p, c); err != nil {
		t.Fatal(err)
	}
	return c.CgroupsPath
}

// TestOnlyRunningContainersGetARecommendation lets one of two containers end, as init containers do, and then the other
// one.
func TestOnlyRunningContainersGetARecommendation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		p := pod("db", nil)
		main, init := b.runs(t, "db", ""), b.runsBeside(t, p, "init")
		b.records(t, 25, map[string]uint64{main: 4, init: 30})
		b.Stop("c-init")
		if got := b.recommends(t, "db"); got.Name != "main" || got.Class != "slow" {
			t.Errorf("recommended is %+v", got)
		}
		b.Stop("c-db")
		if got, err := b.Recommend(t.Context(), history.Selection{Namespace: "ns", Pod: "db"}); !errors.Is(err, recommend.ErrEnded) {
			t.Errorf("after all have ended: %+v, %v, want ErrEnded", got, err)
		}
	})
}

// TestAProposedClassHasAValidName has containers with the longest possible names, which write more than any class
// allows.
func TestAProposedClassHasAValidName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		for pod, name := range map[*classes.Holder]string{
			new(pod("letters", nil)): strings.Repeat("a", 63),
			new(pod("dashes", nil)):  strings.Repeat("a", 50) + strings.Repeat("-", 12) + "a",
		} {
			b.records(t, 25, map[string]uint64{b.runsBeside(t, *pod, name): 900})
			got := b.recommends(t, pod.PodName)
			if got.ClassFile == nil {
				t.Fatalf("recommended is %+v, want a class file", got)
			}
			for _, resource := range got.ClassFile["resources"].([]any) {
				class := resource.(map[string]any)["classes"].([]any)[0].(map[string]any)["name"].(string)
				// the name of the container, shortened and without dashes at its end, and "-fit"
				if err := classes.ValidateClassName(class); err != nil || !strings.HasSuffix(class, "a-fit") {
					t.Errorf("class %q: %v", class, err)
				}
			}
		}
	})
}

// TestNoClassIsRecommendedIfNotAllDisksAreRecorded lets a container use 600 more disks. The history has no room for all
// of them.
func TestNoClassIsRecommendedIfNotAllDisksAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		many, few := b.runs(t, "many", ""), b.runs(t, "few", "")
		b.records(t, 24, map[string]uint64{many: 4, few: 4})
		b.host.disks["/sys/fs/cgroup"+many] = 600
		b.records(t, 1, map[string]uint64{many: 4, few: 4})
		if got := b.recommends(t, "many"); !strings.HasPrefix(got.Problem, "the history has no room for all disks that it uses; ask on a node with fewer") {
			t.Errorf("recommended is %+v", got)
		}
		wantRecommended(t, b.recommends(t, "few"), "fits slow ThrottleWriteBps sda 10")
	})
}

// TestNoClassIsRecommendedIfNotAllContainersOfThePodAreRecorded lets one of two containers of a pod use so many disks
// that the history leaves it out.
func TestNoClassIsRecommendedIfNotAllContainersOfThePodAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := newBlamedPod(t, nil)
		main, many := b.runs(t, "db", ""), b.runsBeside(t, p, "many")
		b.host.disks["/sys/fs/cgroup"+many] = 30_000
		b.records(t, 2, map[string]uint64{main: 4, many: 4})
		if got := b.recommends(t, "db"); !strings.HasPrefix(got.Problem, "the history has no room for all of its containers; ask on a node with fewer") {
			t.Errorf("recommended is %+v", got)
		}
	})
}

func TestAnErrorOfRecommendIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlamed(t, blamedFiles)
		want := func(name string, s history.Selection, kind error, text string) {
			t.Helper()
			_, err := b.Recommend(t.Context(), s)
			wantOneLine(t, name, err, kind, text)
		}
		db := b.runs(t, "db", "")
		selection := history.Selection{Namespace: "ns", Pod: "db"}
		want("nothing yet", selection, history.ErrUnknown, "pod ns/db has no running container on this node, or it has just started")
		b.records(t, 32, map[string]uint64{db: 1})
		want("no pod", history.Selection{}, history.ErrInvalid, "name the pod")
		want("no namespace", history.Selection{Pod: "db"}, history.ErrInvalid, "name the namespace of pod")
		want("an unknown container", history.Selection{Namespace: "ns", Pod: "db", Container: "x"}, history.ErrUnknown, `pod ns/db has no container "x"`)

		b.mustConfigure(t, `{apiVersion: qos.noderesource.dev/v1alpha1, kind: QOSClassConfig, resources: [
  {name: k8s.io/blockio, blockio: {Classes: {heavy: [{Weight: 500}]}}}]}`)
		b.records(t, 2, map[string]uint64{db: 1})
		want("only weights", selection, recommend.ErrNoClass, "no class of this node limits what is recorded: add one with a limit")

		b.fixture.restart(t)
		want("without --history-interval", selection, history.ErrNotRecorded, "--history-interval=15s")
	})
}
