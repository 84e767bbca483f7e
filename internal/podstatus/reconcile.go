// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// podState is the state of a pod between two reconciles. Only the worker that has the pod's key uses it, except for
// the fields that writeEvents uses.
type podState struct {
	uid types.UID
	// last has the latest assignments for each container name.
	last     map[string]*qosv1alpha1.ContainerAssignments
	follower *podrequests.Follower
	retry    kubeapi.Retry
	// refusedAnnotation is the last value of the annotation that the API server has refused, or "". The condition is
	// written without an annotation of this value.
	refusedAnnotation string
	// `written` is the annotation in the latest successful write, and `writtenAt` is the time of this write.
	written   string
	writtenAt time.Time

	// events and eventRetry are used only by writeEvents.
	events     podevents.Series
	eventRetry kubeapi.Retry

	mu sync.Mutex // guards the fields below
	// refused and changed have the records that writeEvents has to add to events.
	refused, changed []podevents.Record
}

// takeRecorded adds the records to the event series.
func (s *podState) takeRecorded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.Set(s.refused...)
	s.events.Add(s.changed...)
	s.refused, s.changed = nil, nil
}

// stateOf returns the state of a pod. If the key belonged to another pod before, stateOf returns a new state.
func (p *Publisher) stateOf(key string, pod *corev1.Pod) *podState {
	known, _ := p.pods.Load(key)
	if state, ok := known.(*podState); ok && state.uid == pod.UID {
		return state
	}

	p.forget(key)
	state := &podState{
		uid: pod.UID, last: map[string]*qosv1alpha1.ContainerAssignments{}, follower: podrequests.NewFollower(p.options.Update),
	}
	p.pods.Store(key, state)
	return state
}

func (p *Publisher) forget(key string) {
	p.pods.Delete(key)
	p.failures.forget(key)
	p.publishRefused(key, nil, nil)
}

// publishRefused publishes the refused changes of a pod.
func (p *Publisher) publishRefused(key string, pod *corev1.Pod, changes []podevents.Record) {
	if p.options.RefusedChanges == nil {
		return
	}

	var refusals []nodeqosv1alpha1.Refusal
	for _, change := range changes {
		refusals = append(refusals, nodeqosv1alpha1.Refusal{
			Namespace: pod.Namespace, Pod: pod.Name, PodUID: podspec.UID(pod), Container: change.Container,
			Reason: nodeqosv1alpha1.ReasonChangeRefused, Message: change.Message,
		})
	}
	p.options.RefusedChanges(key, refusals)
}

// reconcile updates the classes and the condition qos.noderesource.dev/Assigned of one pod, and records its events. It returns the
// time after which the pod must be reconciled again. 0 means that no reconcile is needed until something changes.
func (p *Publisher) reconcile(ctx context.Context, key string) (again time.Duration) {
	object, exists, err := p.latest.GetByKey(key)
	pod, ok := object.(*corev1.Pod)
	if err != nil || !exists || !ok || finished(pod) {
		p.forget(key)
		return 0
	}
	snapshot := p.snapshot.Load()
	if snapshot == nil || !snapshot.ready {
		return 0 // watchPlugin enqueues all pods when the plugin is ready
	}

	state, o := p.stateOf(key, pod), snapshot.observe(pod)
	if p.options.FollowAnnotations {
		outcome := state.follower.Follow(ctx, pod, snapshot.status, o.assignments)
		o.refusedChanges, again = outcome.Refused, outcome.Again
		p.publishRefused(key, pod, outcome.Refused)
	}
	o.last = state.last
	for _, c := range o.containers() {
		state.last[c.GetName()] = c
	}
	if p.options.Events {
		p.recordEvents(state, &o)
	}
	return pause.Shortest(again, p.write(ctx, key, state, &o))
}

func (p *Publisher) recordEvents(state *podState, o *observed) {
	state.mu.Lock()
	defer state.mu.Unlock()
	state.refused = slices.Concat(state.refused, o.refusals, o.refusedChanges)
	if o.assignments != nil {
		state.changed = append(state.changed, p.changes.take(keyOf(o.assignments))...)
	}
}

// write writes the condition and the annotation of a pod, unless the API server has them already, and lets writeEvents write the
// events. It returns the time after which the caller must call write again.
func (p *Publisher) write(ctx context.Context, key string, state *podState, o *observed) (again time.Duration) {
	if wait := max(state.retry.Wait(), p.breaker.Wait()); wait > 0 {
		return wait
	}

	again, err := p.writeCondition(ctx, key, state, o)
	if gone(err, o.pod.Name) {
		return 0 // the informer reports the deletion or the new pod
	}
	if p.options.Events {
		p.eventQueue.Add(key)
	}
	return pause.Shortest(again, p.outcome(ctx, p.breaker, &state.retry, err))
}

// writeEvents writes the events of a pod. It returns the time after which it must be called again.
func (p *Publisher) writeEvents(ctx context.Context, key string) (again time.Duration) {
	known, _ := p.pods.Load(key)
	state, ok := known.(*podState)
	if !ok {
		return 0 // the pod has ended
	}
	state.takeRecorded()
	if wait := max(state.eventRetry.Wait(), p.eventBreaker.Wait()); wait > 0 {
		return wait
	}

	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	pod := podevents.Pod{Namespace: namespace, Name: name, UID: state.uid}
	again, err := state.events.Write(func(record podevents.Record) error {
		return p.eventBreaker.Do(ctx, func() error { return p.events.Write(ctx, pod, record) })
	})
	p.logOutcome(ctx, "write events of pods", key, "event", err)
	return pause.Shortest(again, p.outcome(ctx, p.eventBreaker, &state.eventRetry, err))
}

// outcome records the outcome of a write, and returns the time after which the write must be tried again.
func (p *Publisher) outcome(ctx context.Context, breaker *kubeapi.Breaker, retry *kubeapi.Retry, err error) (again time.Duration) {
	switch {
	case ctx.Err() != nil:
		return 0
	case err == nil:
		retry.Reset()
		return 0
	case errors.Is(err, kubeapi.ErrBreakerOpen):
		return max(breaker.Wait(), time.Millisecond)
	}
	retry.Failed(err)
	return max(retry.Wait(), time.Millisecond)
}

// logOutcome logs the outcome of an attempt for a pod. It logs nothing if there was no attempt.
func (p *Publisher) logOutcome(ctx context.Context, what, key, kind string, err error) {
	if ctx.Err() != nil || errors.Is(err, kubeapi.ErrBreakerOpen) {
		return
	}
	if err != nil {
		err = &kubeapi.About{Kind: kind, Err: err}
	}
	p.failures.record(what, key, err)
}

// rewriteIn returns how long the publisher must wait before it writes this value of the annotation. It returns 0
// unless the last write had the same value. In that case, another client has changed the annotation since.
func (s *podState) rewriteIn(annotation string) time.Duration {
	if annotation != s.written {
		return 0
	}
	return max(time.Until(s.writtenAt.Add(rewriteInterval)), 0)
}

// writeCondition writes the condition and the annotation in one request, unless the API server has them already. It returns the time
// after which the caller must call writeCondition again.
func (p *Publisher) writeCondition(ctx context.Context, key string, state *podState, o *observed) (again time.Duration, err error) {
	want, annotation := o.condition(metav1.Now()), o.annotation()
	if annotation == state.refusedAnnotation {
		annotation = ""
	}
	if !p.options.Conditions || want == nil {
		return 0, nil
	}
	if same(podspec.AssignedCondition(o.pod), want) {
		if o.pod.Annotations[classes.EffectiveKey] == annotation {
			return 0, nil
		}
		if again = state.rewriteIn(annotation); again > 0 {
			return again, nil
		}
	}

	err = p.apply(ctx, o.pod, want, annotation)
	if gone(err, o.pod.Name) {
		return 0, err
	}
	p.logOutcome(ctx, "write the condition of pods", key, "pod condition", err)
	switch {
	case err == nil:
		state.written, state.writtenAt = annotation, time.Now()
	case kubeapi.Refused(err):
		state.refusedAnnotation = annotation
	}
	return 0, err
}

// apply applies the condition, and the annotation if it is not "". If it is "", the API server removes the annotation
// of an earlier apply.
func (p *Publisher) apply(ctx context.Context, pod *corev1.Pod, want *corev1.PodCondition, annotation string) error {
	patch, err := applied(pod, want, annotation)
	if err != nil {
		return err
	}
	return p.breaker.Do(ctx, func() error {
		options := metav1.PatchOptions{FieldManager: nodeqosv1alpha1.FieldManager, Force: new(true)}
		written, err := p.client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.ApplyPatchType, patch, options, "status")
		if err := p.options.Writes.Count("pod-condition", err); err != nil {
			return err
		}

		stripped, err := strip(written)
		p.latest.Mutation(stripped)
		return err
	})
}

// gone reports whether a write failed because the pod is gone, or was replaced by another pod with the same name. If
// the pod was replaced, the API server rejects the UID in the write as invalid or as a conflict. A forced apply has no
// other conflicts. A webhook may answer with the same codes, but only the API server names the pod in the details.
func gone(err error, pod string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Name != pod {
		return false
	}
	anotherUID := apierrors.IsInvalid(err) &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
	return anotherUID || apierrors.IsNotFound(err) || apierrors.IsConflict(err)
}

// applied returns an apply configuration that has only the condition, the UID and, if it is not "", the annotation.
// The UID makes the API server reject the request if a new pod has the same name. client-go's types of apply
// configurations are not used, because they link the types of all API groups.
func applied(pod *corev1.Pod, c *corev1.PodCondition, annotation string) ([]byte, error) {
	metadata := map[string]any{"namespace": pod.Namespace, "name": pod.Name, "uid": pod.UID}
	if annotation != "" {
		metadata["annotations"] = map[string]string{classes.EffectiveKey: annotation}
	}
	return json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
		"status": map[string]any{"conditions": []map[string]any{{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message, "lastTransitionTime": c.LastTransitionTime,
		}}},
	})
}
