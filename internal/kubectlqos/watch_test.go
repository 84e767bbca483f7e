// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// watching runs a command with --watch, calls the function `use` while the command runs, and then interrupts the command.
func (r *rig) watching(t *testing.T, args []string, use func(out, errs *watched)) (out, errs string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	written, complaints, ended := newWatched(), newWatched(), make(chan int, 1)
	go func() { ended <- r.execute(ctx, written, complaints, args...) }()
	use(written, complaints)
	interrupt()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d after an interrupt: %s", code, complaints)
	}
	return written.String(), complaints.String()
}

func (r *rig) setInUse(t *testing.T, class string, n int64, version string) {
	t.Helper()
	r.updateRDT(t, class, func(of map[string]any) { of["inUse"] = n })
	r.updateNode(t, "n1", func(object map[string]any) { object["metadata"].(map[string]any)["resourceVersion"] = version })
}

func TestAWatchOfNodesShowsTheRowsThatChange(t *testing.T) {
	r := newRig(t, "plain.yaml")
	out, _ := r.watching(t, []string{"nodes", "-w"}, func(out, _ *watched) {
		out.await(t, "gold (0/2)")
		r.setInUse(t, "gold", 2, "2")
		out.await(t, "gold (2/2)")
	})
	wantAnswer(t, answer{Out: `
NODE   READY   RESOURCE     CLASSES (IN USE/CAPACITY)
n1     True    k8s.io/rdt   gold (0/2)  silver (0/1)  bronze* (0/inf)  old (0/0, draining)
n1     True    k8s.io/rdt   gold (2/2)  silver (0/1)  bronze* (0/inf)  old (0/0, draining)
`}, answer{Out: out})
}

func TestAWatchOfANodeShowsTheWholePageAgain(t *testing.T) {
	r := newRig(t, "plain.yaml")
	out, _ := r.watching(t, []string{"nodes", "n1", "-w"}, func(out, _ *watched) {
		out.await(t, "gold (0/2)")
		r.setInUse(t, "gold", 1, "2")
		out.await(t, "gold (1/2)")
	})
	if strings.Count(out, "Name:") != 2 || !strings.Contains(out, "\n\nName:") {
		t.Errorf("want two pages, an empty line apart:\n%s", out)
	}
}

func TestAWatchOfTopShowsTheWholeTableAgain(t *testing.T) {
	r := newRig(t, "plain.yaml")
	out, _ := r.watching(t, []string{"top", "-w"}, func(out, _ *watched) {
		out.await(t, "gold     1       0")
		r.setInUse(t, "gold", 1, "2")
		out.await(t, "gold     1       1")
	})
	if strings.Count(out, "RESOURCE") != 2 || !strings.Contains(out, "\n\nRESOURCE") {
		t.Errorf("want two tables, an empty line apart:\n%s", out)
	}
}

func TestAWatchOfDocumentsWritesTheObjectsThatChange(t *testing.T) {
	r := newRig(t, "plain.yaml")
	out, _ := r.watching(t, []string{"nodes", "-w", "-o", `jsonpath={.kind} {.items[0].metadata.name}{.metadata.resourceVersion};`}, func(out, _ *watched) {
		out.await(t, ";")
		r.setInUse(t, "gold", 1, "7")
		out.await(t, "NodeQOSResources 7;")
	})
	if !strings.HasPrefix(out, "NodeQOSResourcesList n1") || strings.Count(out, "NodeQOSResources 7;") != 1 {
		t.Errorf("wrote %q, want the list, and then what changed", out)
	}
}

func TestAWatchOfPodsShowsTheirChanges(t *testing.T) {
	r := newRig(t, "plain.yaml")
	r.put(t, aPod("p").on("n1").asks("rdt=gold").waiting("ContainerCreating", "").Pod)

	out, _ := r.watching(t, []string{"pods", "-w"}, func(out, _ *watched) {
		out.await(t, "ContainerCreating")
		r.updatePod(t, "p", func(pod *corev1.Pod) {
			testPod{pod}.running().reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt gold (container)", "12:55:00")
		})
		r.holds(t, "main=gold/container")
		out.await(t, "gold        gold")
		r.put(t, aPod("q").on("n1").asks("rdt=silver").waiting("ContainerCreating", "").Pod)
		out.await(t, "silver")
	})

	wantAnswer(t, answer{Out: `
POD   CONTAINER   RESOURCE     REQUESTED   EFFECTIVE   SOURCE      WHY
p     main        k8s.io/rdt   gold        -           container   ContainerCreating
p     main        k8s.io/rdt   gold        gold        container
q     main        k8s.io/rdt   silver      -           container   ContainerCreating
`}, answer{Out: out})
}

func TestAWatchThatFailsIsReportedOnceAndRetried(t *testing.T) {
	r := newRig(t, "plain.yaml")
	tries := make(chan struct{}, 10)
	var repaired atomic.Bool
	r.objects.PrependWatchReactor(nodeqosv1alpha1.Plural, func(clienttesting.Action) (bool, watch.Interface, error) {
		if repaired.Load() {
			return false, nil, nil
		}
		tries <- struct{}{}
		return true, nil, errors.New("the line is cut")
	})

	out, errs := r.watching(t, []string{"nodes", "-w"}, func(out, errs *watched) {
		out.await(t, "gold (0/2)")
		errs.await(t, "the line is cut")
		for range 2 { // the second failure is handled before the third try, which succeeds
			<-tries
		}
		repaired.Store(true)
		r.setInUse(t, "gold", 2, "2")
		out.await(t, "gold (2/2)")
	})

	if want := "Trying again: the line is cut\n"; errs != want {
		t.Errorf("complained %q, want %q, after\n%s", errs, want, out)
	}
}

func TestControlCharactersAreReplaced(t *testing.T) {
	r := newRig(t, "plain.yaml")
	r.updateRDT(t, "gold", func(of map[string]any) { of["description"], of["degraded"] = "a\x1b[31mb", "c\nd" })
	var out bytes.Buffer
	r.execute(t.Context(), &out, &out, "nodes", "n1", "-o", "wide")
	if text := out.String(); strings.ContainsRune(text, '\x1b') || !strings.Contains(text, "degraded: c d\n") {
		t.Errorf("wrote %q", text)
	}
}
