// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// memory is what is remembered of one pod. Only the worker that has the pod uses it.
type memory struct {
	uid types.UID
	// byName are the containers that were seen last of their names.
	byName map[string]*qosv1alpha1.ContainerAssignments
	events diary
	// written is what the last write made of the pod, which the watch may not have told yet.
	written *written
	backoff kubeapi.Backoff
	// next is when something may be written again.
	next time.Time
}

// written is of a pod what a write changes.
type written struct {
	version   string
	condition *corev1.PodCondition
}

// pods are the memories, by namespace/name.
type pods struct {
	mu    sync.Mutex // guards known
	known map[string]*memory
}

// of returns the memory of a pod, a new one when it is not the pod that it was. gone is the UID of the other then.
func (p *pods) of(key string, pod *corev1.Pod) (m *memory, gone types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m = p.known[key]
	if m != nil && m.uid == pod.UID {
		return m, ""
	}
	if m != nil {
		gone = m.uid
	}
	m = &memory{uid: pod.UID, events: diary{}, byName: map[string]*qosv1alpha1.ContainerAssignments{}}
	p.known[key] = m
	return m, gone
}

// forget returns the UID of the pod that was known by that name.
func (p *pods) forget(key string) (uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.known[key]; m != nil {
		uid = m.uid
	}
	delete(p.known, key)
	return uid
}

// reconcile brings one pod up to date, and says when to look again; 0 is not before something changes.
func (p *Publisher) reconcile(ctx context.Context, key string) (again time.Duration) {
	object, exists, err := p.informer.GetStore().GetByKey(key)
	pod, ok := object.(*corev1.Pod)
	now := p.present.Load()
	switch {
	case err != nil || !exists || !ok || finished(pod):
		p.forget(p.pods.forget(key))
		return 0
	case now == nil || !now.ready:
		return 0 // all pods are looked at when it is
	}
	m, gone := p.pods.of(key, pod)
	if gone != "" {
		p.forget(gone)
	}
	o := now.observe(m.newest(pod))
	if p.options.FollowAnnotations {
		outcome := p.follower.Follow(ctx, o.pod, now.status, o.assignments)
		o.changes, again = outcome.Refused, outcome.Again
	}
	o.last = m.byName
	m.note(&o)
	if o.assignments != nil { // which are those of a pod of this name
		m.events.note(pod, p.changes.take(o.assignments))
	}
	return pause.Shortest(again, p.write(ctx, m, &o))
}

// forget drops what is known of a pod that is gone.
func (p *Publisher) forget(uid types.UID) {
	p.follower.Forget(uid)
	p.log.forget(uid)
}

// note takes what has happened since.
func (m *memory) note(o *observed) {
	m.events.note(o.pod, refusalsOf(o.refusals))
	m.events.note(o.pod, changesRefused(o.changes))
	if o.assignments == nil {
		return
	}
	for _, c := range o.containers() {
		m.byName[c.GetName()] = c
	}
}

// newest is the pod as the watch told, or as it was after the last write if that is newer.
func (m *memory) newest(pod *corev1.Pod) *corev1.Pod {
	if m.written == nil {
		return pod
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, m.written.version)
	if err != nil || order >= 0 {
		m.written = nil
		return pod
	}
	newest := *pod
	newest.Status.Conditions = nil
	if c := m.written.condition; c != nil {
		newest.Status.Conditions = []corev1.PodCondition{*c}
	}
	return &newest
}

// write tells the API what it does not know, and says when to do so again.
func (p *Publisher) write(ctx context.Context, m *memory, o *observed) (again time.Duration) {
	if wait := max(time.Until(m.next), p.gate.shut()); wait > 0 {
		return wait
	}
	failed := p.writeCondition(ctx, m, o)
	if gone(failed) {
		return 0 // the watch tells what is there now
	}
	if p.options.Events {
		var err error
		again, err = m.events.write(ctx, p.events, o.pod)
		if ctx.Err() == nil && !errors.Is(err, kubeapi.ErrNotNow) {
			p.log.tell("write events of pods", o.pod.Namespace, o.pod.UID, about("event", err))
		}
		failed = errors.Join(failed, err)
	}
	m.events.forget(time.Now())
	if failed == nil || ctx.Err() != nil {
		m.backoff.Reset()
		return again
	}
	if errors.Is(failed, kubeapi.ErrNotNow) { // nothing was asked
		return pause.Shortest(again, max(p.gate.shut(), time.Millisecond))
	}
	wait := m.backoff.Next(failed, rand.Float64())
	m.next = time.Now().Add(wait)
	return pause.Shortest(again, wait)
}

func (p *Publisher) writeCondition(ctx context.Context, m *memory, o *observed) error {
	if !p.options.Conditions {
		return nil
	}
	want := o.condition(metav1.Now())
	if want == nil || same(conditionOf(o.pod), want) {
		return nil
	}
	after, err := p.apply(ctx, o.pod, want)
	if ctx.Err() != nil || gone(err) || errors.Is(err, kubeapi.ErrNotNow) {
		return err
	}
	p.log.tell("write the condition of pods", o.pod.Namespace, o.pod.UID, about("pod condition", err))
	if err != nil {
		return err
	}
	m.written = &written{version: after.ResourceVersion}
	if is := conditionOf(after); is != nil {
		m.written.condition = is.DeepCopy() // alone, not all that the answer has
	}
	return nil
}

func about(kind string, err error) error {
	if err == nil {
		return nil
	}
	return &kubeapi.About{Kind: kind, Err: err}
}

// gone says whether a write found no pod, or another one of that name. The API server refuses to change a UID; of what is
// forced, nothing else conflicts.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || anotherUID(err)
}

func anotherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// applied has the condition, and the UID: another pod of the name is not touched.
func applied(pod *corev1.Pod, c *corev1.PodCondition) *applycorev1.PodApplyConfiguration {
	return applycorev1.Pod(pod.Name, pod.Namespace).WithUID(pod.UID).WithStatus(
		applycorev1.PodStatus().WithConditions(applycorev1.PodCondition().
			WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithLastTransitionTime(c.LastTransitionTime)))
}
