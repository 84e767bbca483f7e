// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podeviction

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// EventClassRemoved is the reason of events that tell on a pod that it is, or was to be, evicted.
const EventClassRemoved = "QOSClassRemoved"

const (
	// reporter reports the events.
	reporter = "qos-kubelet-shim"
	// maxMessage and maxName are what Kubernetes takes, in bytes.
	maxMessage = 1024
	maxName    = 253
)

// tell says what came of a try, in the log and on the pod, when that is something else than before. Of the API server, and of the right
// that is missing, it is said once for all pods.
func (e *Evictor) tell(ctx context.Context, w *wish, came result, err error) {
	if came == unavailable {
		e.serverReport.Tell(err)
		return
	}
	e.serverReport.Tell(nil)
	p, pod := e.pods[w.uid], w.namespace+"/"+w.name
	if p.said == came {
		return
	}
	p.said = came
	switch came {
	case evicted:
		e.options.Log.Info("evicted", "pod", pod, "why", w.why)
		e.event(ctx, w, "evicted: "+w.why)
	case blocked:
		e.options.Log.Info("not evicted yet, trying again", "pod", pod, "why", w.why, "problem", words(err))
		e.event(ctx, w, "to be evicted as soon as its PodDisruptionBudget allows it: "+w.why)
	case static:
		const remedy = "a static pod cannot be evicted: the kubelet would make it again; change its file"
		e.options.Log.Warn("not evicted", "pod", pod, "why", w.why, "problem", remedy)
		e.event(ctx, w, remedy+": "+w.why)
	case forbidden:
		e.tellForbidden(pod, err)
	case failed:
		e.options.Log.Warn("not evicted, trying again", "pod", pod, "why", w.why, "problem", kubeapi.Explain(err))
	}
}

// tellForbidden says once what right is missing, until it is missing nowhere.
func (e *Evictor) tellForbidden(pod string, err error) {
	if e.saidRefusing {
		return
	}
	e.saidRefusing = true
	e.options.Log.Warn("the right to evict is missing, which class files ask for; what has a class that was removed keeps it until it ends",
		"pod", pod, "problem", words(err)+"; to let it evict: "+optIn)
}

// words are those of the API server.
func words(err error) string {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return err.Error()
	}
	parts := []string{said.Status().Message}
	if details := said.Status().Details; details != nil {
		for _, cause := range details.Causes {
			parts = append(parts, cause.Message)
		}
	}
	return strings.Join(parts, " ")
}

// event tells on a pod, once for each message.
func (e *Evictor) event(ctx context.Context, w *wish, message string) {
	if !e.options.Events {
		return
	}
	request, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	_, err := e.client.CoreV1().Events(w.namespace).Create(request, e.eventOf(w, message), metav1.CreateOptions{})
	if err = e.writes.Count("event", err); ctx.Err() == nil && !told(err) {
		e.eventsWritten.Tell(err)
	}
}

// told says whether there is nothing to be said about an event that was not written: it is there, or goes with its namespace.
func told(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func (e *Evictor) eventOf(w *wish, message string) *corev1.Event {
	message = kubeapi.Cut(message, maxMessage, "…")
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: w.namespace, Name: eventName(w, message)},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: w.name, UID: w.uid},
		Reason:         EventClassRemoved, Message: message, Type: corev1.EventTypeWarning,
		Source:              corev1.EventSource{Component: reporter, Host: e.options.NodeName},
		ReportingController: reporter, ReportingInstance: e.options.NodeName,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

// eventName is the same for the same, also after a restart, so that it is one event.
func eventName(w *wish, message string) string {
	sum := sha256.Sum256([]byte(string(w.uid) + "\x00" + message))
	suffix := "." + hex.EncodeToString(sum[:8])
	name := w.name
	if most := maxName - len(suffix); len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name + suffix
}
