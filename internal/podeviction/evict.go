// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podeviction

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
)

// result is the outcome of an eviction attempt, and the value of the metric's label "result".
type result string

const (
	evicted     result = "evicted"
	gone        result = "gone"        // the pod ended, is being deleted, or was replaced by a pod with the same name
	static      result = "static"      // the kubelet would recreate the pod
	blocked     result = "blocked"     // a PodDisruptionBudget does not allow it now
	forbidden   result = "forbidden"   // the shim lacks the permission to evict pods
	unavailable result = "unavailable" // the API server cannot serve any request
	failed      result = "error"       // any other failure
)

func (e *Evictor) evict(ctx context.Context, t *target) {
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := e.check(request, t)
	if r == "" && err == nil {
		err = e.post(request, t)
	}
	if ctx.Err() != nil {
		return
	}

	if r == "" {
		r = resultOf(err)
	}
	e.results.WithLabelValues(string(r)).Inc()
	e.schedule(t, r, err)
	e.report(ctx, t, r, err)
}

// check reads the pod. It returns "" if the pod may be evicted, and otherwise the result of the attempt. It uses a
// list request, because the shim does not have the permission to get pods.
func (e *Evictor) check(ctx context.Context, t *target) (result, error) {
	list, err := e.client.Pods(t.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, t.name).String(),
	})
	if err != nil {
		return "", err
	}

	for i := range list.Items {
		if pod := &list.Items[i]; pod.Name == t.name {
			return e.checkPod(pod, t), nil
		}
	}
	return gone, nil
}

// checkPod returns the result of `check` for a pod that has the target's name. If the target is a static pod, the pod
// in the API server is its mirror pod, with the target's UID in an annotation.
func (e *Evictor) checkPod(pod *corev1.Pod, t *target) result {
	switch {
	case pod.Spec.NodeName != e.options.NodeName:
		return gone
	case pod.Annotations[corev1.MirrorPodAnnotationKey] == string(t.uid):
		return static
	case pod.UID != t.uid, pod.DeletionTimestamp != nil, podspec.Finished(pod):
		return gone
	}
	return ""
}

func (e *Evictor) post(ctx context.Context, t *target) error {
	err := e.client.Pods(t.namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: t.namespace, Name: t.name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &t.uid}},
	})
	return e.options.Writes.Count("pod-eviction", err)
}

func resultOf(err error) result {
	// The request has the pod's UID as a precondition. A conflict about the UID means that the name belongs to another
	// pod now. Other conflicts come from concurrent changes.
	anotherUID := apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID")
	switch {
	case err == nil:
		return evicted
	case apierrors.IsNotFound(err), anotherUID, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return gone
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return blocked
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `resource "pods/eviction"`):
		return forbidden
	// The code is checked and not the reason, because some answers have no reason. An example is the answer to the eviction
	// of a pod that has two PodDisruptionBudgets.
	case kubeapi.ServerFailed(err) && kubeapi.StatusCode(err) != http.StatusInternalServerError:
		return unavailable
	}
	return failed
}

// schedule sets the time of the next attempt for this pod. If the API server is unavailable, it delays the attempts for
// all pods. If a permission is missing, it delays the attempts for all pods of the namespace.
func (e *Evictor) schedule(t *target, r result, err error) {
	if r != unavailable {
		e.server.Reset()
	}
	if r == evicted || r == blocked {
		delete(e.forbidden, t.namespace)
	}

	switch p := e.pods[t.uid]; r {
	case evicted, gone, static:
		p.done = true
	case unavailable:
		e.server.Failed(err)
	case forbidden:
		if e.forbidden[t.namespace] == nil {
			e.forbidden[t.namespace] = &kubeapi.Retry{}
		}
		e.forbidden[t.namespace].Failed(err)
	case blocked, failed:
		p.retry.Failed(err)
	}
}

// report logs the result and writes an event if the result differs from the pod's previous result. If the API server
// is unavailable or a permission is missing, it logs this once for all pods.
func (e *Evictor) report(ctx context.Context, t *target, r result, err error) {
	if r == unavailable {
		e.serverLog.Record(err)
		return
	}
	e.serverLog.Record(nil)
	p, pod := e.pods[t.uid], t.namespace+"/"+t.name
	if p.reported == r {
		return
	}

	p.reported = r
	log := e.options.Log.With("pod", pod, "reason", t.reason)
	switch r {
	case evicted:
		log.Info("pod evicted")
		e.event(ctx, t, "evicted: "+t.reason)
	case blocked:
		log.Info("pod not evicted yet, trying again", "problem", messageOf(err))
		e.event(ctx, t, "the pod will be evicted as soon as its PodDisruptionBudget allows it: "+t.reason)
	case static:
		const remedy = "a static pod cannot be evicted, because the kubelet would recreate it; change its manifest file"
		log.Warn("pod not evicted", "problem", remedy)
		e.event(ctx, t, remedy+": "+t.reason)
	case forbidden:
		e.reportForbidden(pod, err)
	case failed:
		log.Warn("pod not evicted, trying again", "problem", kubeapi.Explain(err))
	}
}

// reportForbidden logs a missing permission once. It logs again only after the method `forget` has found e.forbidden
// empty.
func (e *Evictor) reportForbidden(pod string, err error) {
	if e.forbiddenLogged {
		return
	}
	e.forbiddenLogged = true
	e.options.Log.Warn("class files require evictions, but the permission to evict pods is missing; pods keep a removed class until they end",
		"pod", pod, "problem", messageOf(err)+"; to grant it, set the value evictions of the Helm chart, or: kubectl apply -k deploy/kubernetes-eviction")
}

func messageOf(err error) string {
	parts := []string{kubeapi.Message(err)}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			parts = append(parts, cause.Message)
		}
	}
	return strings.Join(parts, " ")
}

func (e *Evictor) event(ctx context.Context, t *target, message string) {
	if !e.options.Events {
		return
	}

	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now := time.Now()
	err := e.events.Write(request, podevents.Pod{Namespace: t.namespace, Name: t.name, UID: t.uid}, podevents.Record{
		Reason: podevents.ClassRemoved, Warning: true, Series: message, Message: message, Count: 1, First: now, Last: now,
	})
	if ctx.Err() == nil {
		e.eventLog.Record(err)
	}
}
