// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// told is an occurrence with what the API has of it.
type told struct {
	occurrence
	// until is the last occurrence that the event tells; at is when it was written. Zero before it was written.
	until, at time.Time
}

// pending says whether there is something new, and from when on it may be written.
func (t *told) pending() (at time.Time, pending bool) {
	if !t.last.After(t.until) {
		return time.Time{}, false
	}
	if t.at.IsZero() {
		return time.Time{}, true
	}
	return t.at.Add(eventInterval), true
}

// diary has the occurrences of one pod, by the name of the event. Its user sees to it that it has one user at a time.
type diary map[string]*told

// note takes occurrences. Those that are counted elsewhere come with their count, single ones are added up.
func (d diary) note(pod *corev1.Pod, occurrences []occurrence) {
	for _, o := range occurrences {
		name := eventName(pod, o)
		t := d[name]
		switch {
		case t == nil:
			d[name] = &told{occurrence: o}
		case o.reason == EventChanged:
			o.count, o.first = t.count+1, t.first
			t.occurrence = o
		default:
			t.occurrence = o
		}
	}
}

// forget drops what the API has been told and need not be told again soon: nobody repeats it.
func (d diary) forget(now time.Time) {
	maps.DeleteFunc(d, func(_ string, t *told) bool {
		_, pending := t.pending()
		return !pending && now.Sub(t.at) > 2*eventInterval && now.Sub(t.last) > 2*eventInterval
	})
}

// write brings the events up to date, and says when to do so again; 0 is not before something happens. One that fails does not
// keep others from being written; the error is that of the first.
func (d diary) write(ctx context.Context, w *eventWriter, pod *corev1.Pod) (again time.Duration, err error) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		t := d[name]
		at, pending := t.pending()
		if !pending {
			continue
		}
		if wait := time.Until(at); wait > 0 {
			again = pause.Shortest(again, wait)
			continue
		}
		if failed := w.write(ctx, pod, t); failed != nil {
			err = cmp.Or(err, failed)
			continue
		}
		t.until, t.at = t.last, time.Now()
	}
	return again, err
}

// eventWriter writes events of pods.
type eventWriter struct {
	client corev1client.EventsGetter
	node   string
	// allow waits until a request may be made, and took takes what came of it; count counts it if it wrote.
	allow       func(context.Context) error
	took, count func(error) error
}

// write makes the event, or raises the count of the one that is there.
func (w *eventWriter) write(ctx context.Context, pod *corev1.Pod, t *told) error {
	if err := w.allow(ctx); err != nil {
		return err
	}
	return w.took(w.tell(ctx, pod, t))
}

func (w *eventWriter) tell(ctx context.Context, pod *corev1.Pod, t *told) error {
	event, events := eventOf(pod, w.node, t.occurrence), w.client.Events(pod.Namespace)
	if t.count == 1 { // most likely there is none
		_, err := events.Create(ctx, event, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return w.done(err)
		}
	}
	// It may be of an earlier life of this process. A patch of nothing reads it, without the right to read those of others.
	is, err := events.Patch(ctx, event.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err): // Kubernetes forgets events after an hour
		_, err = events.Create(ctx, event, metav1.CreateOptions{})
		return w.done(err)
	case err != nil:
		return err
	}
	return w.raise(ctx, is, event, t.occurrence)
}

// raise counts an occurrence in an event that is there, unless it tells that already.
func (w *eventWriter) raise(ctx context.Context, is, event *corev1.Event, o occurrence) error {
	count, ok := raised(is, o)
	if !ok {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": is.UID, "resourceVersion": is.ResourceVersion},
		"message":  event.Message, "count": count, "lastTimestamp": event.LastTimestamp,
	})
	if err != nil {
		return err
	}
	_, err = w.client.Events(is.Namespace).Patch(ctx, is.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return w.done(err)
}

// done takes it as written when its namespace is about to go.
func (w *eventWriter) done(err error) error {
	if err := w.count(err); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	return nil
}
