// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// stillController is a controller whose informers do not watch the API. A test fills their stores, and calls the methods of the controller.
type stillController struct {
	*controller
	writer   *writer
	recorder *events.FakeRecorder
}

// newStillController returns a controller whose informers have the objects in the manifests, and NodeQOSResources objects. An empty text is no
// object.
func newStillController(t *testing.T, manifests string, nodes ...string) stillController {
	t.Helper()
	c := stillController{writer: &writer{}, recorder: events.NewFakeRecorder(10)}
	objects, pods := read(t, manifests)
	c.controller = &controller{
		objects: *objects,
		nodes:   informer{store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)},
		pods:    informer{store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byNode: nodeIndex, byClaim: claimIndex})},
		writer:  c.writer, recorder: c.recorder, log: slog.New(slog.DiscardHandler),
		reported: map[string]map[types.UID]string{}, writes: map[string]*rate.Limiter{},
	}
	for _, pod := range pods {
		must.Do(t, c.pods.GetStore().Add(pod))
	}
	for _, node := range nodes {
		if node != "" {
			c.putNode(t, node)
		}
	}
	return c
}

// TestAClaimHasAnEventForEachNewProblem: if a claim has several problems at the same time, only the first one counts.
func TestAClaimHasAnEventForEachNewProblem(t *testing.T) {
	c := newStillController(t, manifests)
	claim := &corev1.PersistentVolumeClaim{}
	claim.UID = "c1"
	wrong := []problem{{claim, errors.New("wrong")}}
	for _, step := range []struct {
		name     string
		problems []problem
		events   int
	}{
		{"a problem", wrong, 1}, {"the same problem", wrong, 0}, {"another problem", []problem{{claim, errors.New("missing")}}, 1},
		{"no problem", nil, 0}, {"the first problem again", wrong, 1},
		{"the same problem, and then another one", []problem{wrong[0], {claim, errors.New("missing")}}, 0}, {"the same problems", wrong, 0},
	} {
		c.report("node-1", step.problems)
		if got := len(c.recorder.Events); got != step.events {
			t.Errorf("%s: %d events, want %d", step.name, got, step.events)
		}
		for range len(c.recorder.Events) {
			<-c.recorder.Events
		}
		if len(step.problems) == 0 && len(c.reported) > 0 {
			t.Errorf("%s: the field reported has %v, want nothing", step.name, c.reported)
		}
	}
}

// TestEventsAreOneShortLine: the API accepts notes of up to 1024 bytes.
func TestEventsAreOneShortLine(t *testing.T) {
	c := newStillController(t, manifests)
	c.report("node-1", []problem{{&corev1.PersistentVolumeClaim{}, errors.New(strings.Repeat("x\n", 1000))}})
	_, note, _ := strings.Cut(<-c.recorder.Events, "NotEnforced ")
	if len(note) > 1024 || strings.Contains(note, "\n") {
		t.Errorf("the note has %d bytes, want one line of at most 1024: %q", len(note), note)
	}
}

// informer is an informer that does not watch the API. Its store has only what a test adds.
type informer struct {
	cache.SharedIndexInformer
	store cache.Indexer
}

func (i informer) GetStore() cache.Store     { return i.store }
func (i informer) GetIndexer() cache.Indexer { return i.store }

// writer keeps the last patch.
type writer struct {
	dynamic.ResourceInterface
	patch string
}

func (w *writer) Patch(
	_ context.Context, _ string, _ types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string,
) (*unstructured.Unstructured, error) {
	w.patch = string(patch)
	return nil, nil //nolint:nilnil // the caller needs no object
}

// putNode adds or replaces the NodeQOSResources object of a node.
func (c stillController) putNode(t *testing.T, node string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	must.Do(t, yaml.Unmarshal([]byte(node), &object.Object))
	must.Do(t, c.nodes.GetStore().Add(object))
}

// reconciled reconciles the object of a node, and returns the patch, or "" if nothing is written.
func (c stillController) reconciled(t *testing.T, node string) (patch string) {
	t.Helper()
	c.writer.patch = ""
	must.Do(t, c.reconcile(t.Context(), node))
	return c.writer.patch
}

// TestTheSpecOfANodeWithoutVolumesIsWrittenOnce: the node keeps the limits that it has until the spec has `written: true`. So a spec
// without volumes is also written.
func TestTheSpecOfANodeWithoutVolumesIsWrittenOnce(t *testing.T) {
	_, withoutPod, _ := strings.Cut(manifests, "---\n")
	c := newStillController(t, withoutPod)
	for _, step := range []struct {
		object string
		writes bool
	}{
		{"metadata: {name: node-1}", true}, {"{metadata: {name: node-1}, spec: {written: true}}", false},
	} {
		c.putNode(t, step.object)
		patch := c.reconciled(t, "node-1")
		if got := strings.Contains(patch, `"spec":{"written":true}`); got != step.writes {
			t.Errorf("for the object %v, the patch is %q, want a write: %t", step.object, patch, step.writes)
		}
	}
}

// TestAClaimWhoseClassChangesAgainAndAgainIsWrittenSeldom changes the class of a claim each second. The
// controller makes five writes without a wait, and then one in 10 s. The last write has the last class.
func TestAClaimWhoseClassChangesAgainAndAgainIsWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStillController(t, manifests, "metadata: {name: node-1}")
		c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		defer c.queue.ShutDown()
		claim := must.Get(c.objects.claims.PersistentVolumeClaims("a").Get("data"))(t)
		writes := 0
		for i := range 100 {
			claim.Spec.VolumeAttributesClassName = new([]string{"silver", "gold"}[i%2])
			if c.reconciled(t, "node-1") != "" {
				writes++
			}
			<-time.After(time.Second)
		}
		if writes < 10 || writes > 15 {
			t.Errorf("%d writes for 100 changes, want 10 to 15", writes)
		}

		if key, _ := c.queue.Get(); key != "node-1" {
			t.Fatalf("the queue has %q, want node-1, for the write of the last class", key)
		}
		<-time.After(writeInterval)
		if patch := c.reconciled(t, "node-1"); !strings.Contains(patch, `"class":"gold"`) {
			t.Errorf("the last patch is %q, want class gold", patch)
		}
	})
}
