// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podeviction

import (
	"context"
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// result is what came of a try to evict a pod, in a word that is good for a metric's label.
type result string

const (
	evicted     result = "evicted"
	gone        result = "gone"        // it has ended, is about to, or is another pod by now
	static      result = "static"      // the kubelet would make it again
	blocked     result = "blocked"     // a PodDisruptionBudget does not allow it now
	forbidden   result = "forbidden"   // the right to evict is missing
	unavailable result = "unavailable" // the API server cannot answer anybody
	failed      result = "error"       // anything else
)

// optIn is what gives the right to evict.
const optIn = "kubectl apply -k deploy/kubernetes-eviction"

// evict tries to evict a pod, and notes what came of it.
func (e *Evictor) evict(ctx context.Context, w *wish) {
	request, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	came, err := e.look(request, w)
	if came == "" && err == nil {
		err = e.post(request, w)
	}
	if ctx.Err() != nil {
		return
	}
	if came == "" {
		came = resultOf(err)
	}
	e.results.WithLabelValues(string(came)).Inc()
	e.note(w, came, err)
	e.tell(ctx, w, came, err)
}

// look says what is the case without any eviction; "" when the pod is there to be evicted. The right to read one pod is that to list all.
func (e *Evictor) look(ctx context.Context, w *wish) (result, error) {
	list, err := e.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String(),
	})
	if err != nil {
		return "", err
	}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Name == w.name {
			return e.state(pod, w), nil
		}
	}
	return gone, nil
}

// state is that of a pod of the name. A static pod has another UID in the API than on its node; the kubelet writes the node's into an
// annotation.
func (e *Evictor) state(pod *corev1.Pod, w *wish) result {
	ended := pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.Spec.NodeName != e.options.NodeName:
		return gone
	case pod.Annotations[corev1.MirrorPodAnnotationKey] == string(w.uid):
		return static
	case pod.UID != w.uid || ended:
		return gone
	}
	return ""
}

// post asks for the eviction of this very pod, and not of another of its name.
func (e *Evictor) post(ctx context.Context, w *wish) error {
	err := e.client.CoreV1().Pods(w.namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: w.namespace, Name: w.name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &w.uid}},
	})
	return e.writes.Count("pod-eviction", err)
}

func resultOf(err error) result {
	switch {
	case err == nil:
		return evicted
	case apierrors.IsNotFound(err), anotherUID(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return gone
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return blocked
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `resource "pods/eviction"`):
		return forbidden
	case ofServer(err):
		return unavailable
	}
	return failed
}

// anotherUID says whether there is another pod of the name. Other conflicts are with somebody who changed the pod at the same time.
func anotherUID(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID")
}

// ofServer says whether any other request would have had the same answer. A pod with two budgets is answered with code 500.
func ofServer(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError {
		return false
	}
	switch kubeapi.OutcomeOf(err) {
	case kubeapi.Unavailable, kubeapi.TooMany, kubeapi.Unauthorized:
		return true
	}
	return false
}

// note decides when the next try is.
func (e *Evictor) note(w *wish, came result, err error) {
	if came != unavailable {
		e.server = retry{}
	}
	switch p := e.pods[w.uid]; came {
	case evicted, gone, static:
		p.done = true
	case unavailable:
		e.server.postpone(err)
	case forbidden:
		if e.refusing[w.namespace] == nil {
			e.refusing[w.namespace] = &retry{}
		}
		e.refusing[w.namespace].postpone(err)
	case blocked, failed:
		p.postpone(err)
	}
	if came == evicted || came == blocked {
		delete(e.refusing, w.namespace)
	}
}
