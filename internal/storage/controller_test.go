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
)

func TestAClaimHasAnEventForEachNewProblem(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	c := &controller{recorder: recorder, reported: map[string]map[types.UID]string{}}
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
		{"the same problem with another one", []problem{wrong[0], {claim, errors.New("missing")}}, 0}, {"the same problems", wrong, 0},
	} {
		c.report("node-1", step.problems)
		if got := len(recorder.Events); got != step.events {
			t.Errorf("%s: %d events, want %d", step.name, got, step.events)
		}
		for range len(recorder.Events) {
			<-recorder.Events
		}
	}
}

func TestEventsAreOneShortLine(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	c := &controller{recorder: recorder, reported: map[string]map[types.UID]string{}}
	c.report("node-1", []problem{{&corev1.PersistentVolumeClaim{}, errors.New(strings.Repeat("x\n", 1000))}})
	_, note, _ := strings.Cut(<-recorder.Events, "NotEnforced ")
	if len(note) > 1024 || strings.Contains(note, "\n") {
		t.Errorf("the note has %d bytes, or several lines: %q", len(note), note)
	}
}

func TestNodesWithoutProblemsAreNotRemembered(t *testing.T) {
	c := &controller{recorder: events.NewFakeRecorder(1), reported: map[string]map[types.UID]string{}}
	c.report("node-1", []problem{{&corev1.PersistentVolumeClaim{}, errors.New("wrong")}})
	c.report("node-1", nil)
	if len(c.reported) > 0 {
		t.Errorf("the field reported has %v, want nothing", c.reported)
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

func TestTheSpecOfANodeWithoutVolumesIsWrittenOnce(t *testing.T) {
	w := &writer{}
	c := &controller{
		nodes:  informer{store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)},
		pods:   informer{store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byNode: nodeIndex})},
		writer: w, reported: map[string]map[types.UID]string{}, writes: map[string]*rate.Limiter{}, log: slog.New(slog.DiscardHandler),
	}

	for _, step := range []struct {
		object map[string]any
		writes bool
	}{
		{map[string]any{"metadata": map[string]any{"name": "node-1"}}, true},
		{map[string]any{"metadata": map[string]any{"name": "node-1"}, "spec": map[string]any{"written": true}}, false},
	} {
		w.patch = ""
		if err := c.nodes.GetStore().Add(&unstructured.Unstructured{Object: step.object}); err != nil {
			t.Fatal(err)
		}
		if err := c.reconcile(t.Context(), "node-1"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(w.patch, `"spec":{"written":true}`); got != step.writes {
			t.Errorf("for the object %v, the patch is %q, want a write: %t", step.object, w.patch, step.writes)
		}
	}
}

// TestAClaimWhoseClassChangesAgainAndAgainIsWrittenSeldom changes the class of a claim each second. The node gets the last class.
func TestAClaimWhoseClassChangesAgainAndAgainIsWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, pods := read(t, manifests)
		w := &writer{}
		c := &controller{
			objects: *objects, nodes: informer{store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)},
			pods:   informer{store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byNode: nodeIndex})},
			queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
			writer: w, reported: map[string]map[types.UID]string{}, writes: map[string]*rate.Limiter{}, log: slog.New(slog.DiscardHandler),
		}
		defer c.queue.ShutDown()
		node := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "node-1"}}}
		if err := errors.Join(c.nodes.GetStore().Add(node), c.pods.GetStore().Add(pods[0])); err != nil {
			t.Fatal(err)
		}
		claim, err := objects.claims.PersistentVolumeClaims("a").Get("data")
		if err != nil {
			t.Fatal(err)
		}

		writes := 0
		reconcile := func() {
			w.patch = ""
			if err := c.reconcile(t.Context(), "node-1"); err != nil {
				t.Fatal(err)
			}
			if w.patch != "" {
				writes++
			}
		}
		for i := range 100 {
			claim.Spec.VolumeAttributesClassName = new([]string{"silver", "gold"}[i%2])
			reconcile()
			<-time.After(time.Second)
		}
		if writes < 10 || writes > 15 {
			t.Errorf("%d writes for 100 changes, want 10 to 15", writes)
		}

		if key, _ := c.queue.Get(); key != "node-1" {
			t.Fatalf("the queue has %q", key)
		}
		<-time.After(writeInterval)
		reconcile()
		if !strings.Contains(w.patch, `"class":"gold"`) {
			t.Errorf("the last patch is %q, want class gold", w.patch)
		}
	})
}
