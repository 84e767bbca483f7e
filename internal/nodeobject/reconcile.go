// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
)

// applied is the status that the publisher wrote last.
type applied struct {
	status  nodeqosv1alpha1.NodeQOSResourcesStatus
	version string // resource version of the object after the write
	at      time.Time
}

// reconcile makes the plugin follow the spec of the object, and publishes the status. It returns the time after which it must be
// called again; 0 means that it must be called at the next change.
func (p *Publisher) reconcile(ctx context.Context) (next time.Duration, err error) {
	object := p.observed.get()
	typed, err := typedOf(object)
	if err != nil {
		p.options.Log.Warn("the NodeQOSResources object cannot be parsed, so it is overwritten", "name", p.options.NodeName, "problem", err)
	}
	state, _ := p.cache.Get()

	sent, followErr := p.follow(ctx, typed, state)
	if sent {
		return debounce, nil // after this time, the cache has the plugin's state for the new spec
	}
	next, err = p.publish(ctx, object, typed, state)
	return next, cmp.Or(err, followErr)
}

// publish writes the object if the object's status differs from the desired status, or if a heartbeat is due. It
// returns the time after which reconcile must be called again.
func (p *Publisher) publish(
	ctx context.Context, object *unstructured.Unstructured, typed nodeqosv1alpha1.NodeQOSResources, state nodecache.State,
) (next time.Duration, err error) {
	before := typed.Status
	next = graceLeft(state, time.Now())
	desired, known := desiredStatus(state, before, time.Now())
	if !known {
		return next, nil
	}
	p.setVolumes(&desired, typed, state)
	p.setRefusals(&desired, state)
	limitSize(&desired, typed.Spec, time.Now().Before(p.reducedUntil), before.Conditions, time.Now())
	desired.FollowsAnnotations, desired.LastHeartbeatTime = p.options.FollowsAnnotations, before.LastHeartbeatTime
	next = pause.Shortest(next, p.untilHeartbeat(before))

	if owned(object, p.owner) {
		if p.inSync(object, before, desired) {
			return next, nil
		}
		if wait := p.untilNextWrite(before, desired); wait > 0 {
			return wait, nil
		}
	}
	// Read the Node before every write, because it may have been deleted and created again with another UID.
	if p.owner, err = p.nodeUID(ctx); err != nil {
		return 0, err
	}
	if !owned(object, p.owner) {
		if object, err = p.apply(ctx, p.identity()); err != nil {
			return 0, err
		}
		typed, _ = typedOf(object) // an object that cannot be parsed counts as empty
		before = typed.Status
	}
	if p.inSync(object, before, desired) {
		return next, nil
	}
	desired.LastHeartbeatTime = new(seconds(time.Now()))
	if err := p.applyStatus(ctx, object, desired); err != nil {
		return 0, err
	}
	p.reportClassFiles(ctx, object, before, desired)
	return pause.Shortest(graceLeft(state, time.Now()), p.heartbeat), nil
}

// reportClassFiles writes an event if the status that was written has a new reason why class files are refused. It does not retry: the
// status has the reason anyway.
func (p *Publisher) reportClassFiles(
	ctx context.Context, object *unstructured.Unstructured, before, written nodeqosv1alpha1.NodeQOSResourcesStatus,
) {
	now := meta.FindStatusCondition(written.Conditions, nodeqosv1alpha1.ConditionConfigurationApplied)
	was := meta.FindStatusCondition(before.Conditions, nodeqosv1alpha1.ConditionConfigurationApplied)
	if p.options.RecordEvent == nil || now == nil || now.Reason != qos.ReasonRefused || was != nil && was.Message == now.Message {
		return
	}

	record := podevents.Record{
		Reason: podevents.ClassFilesRefused, Warning: true, Series: now.Message, Message: now.Message, Count: 1, First: time.Now(), Last: time.Now(),
	}
	if err := p.options.RecordEvent(ctx, object.GetUID(), record); err != nil && ctx.Err() == nil {
		p.options.Log.Warn("cannot write the event about class files", "name", p.options.NodeName, "problem", err)
	}
}

// untilHeartbeat returns the time after which the status must be written even if it has not changed.
func (p *Publisher) untilHeartbeat(status nodeqosv1alpha1.NodeQOSResourcesStatus) time.Duration {
	if status.LastHeartbeatTime == nil {
		return 0
	}
	age := time.Since(status.LastHeartbeatTime.Time)
	if age < 0 { // the clock was set back
		return 0
	}
	return max(p.heartbeat-age, 0)
}

func (p *Publisher) applyStatus(ctx context.Context, object *unstructured.Unstructured, status nodeqosv1alpha1.NodeQOSResourcesStatus) error {
	after, err := p.apply(ctx, nodeqosv1alpha1.NodeQOSResources{Status: status}, "status")
	switch {
	case apierrors.IsNotFound(err):
		p.observed.set(object, true)
	case isTooLarge(err):
		p.reducedUntil = time.Now().Add(reducedTime)
	}
	if err != nil {
		return err
	}

	p.applied = applied{status: status, version: after.GetResourceVersion(), at: time.Now()}
	return nil
}

// untilNextWrite returns how long the publisher must wait before it may write the desired status. The wait is longer if
// only holders and refusals differ.
func (p *Publisher) untilNextWrite(before, desired nodeqosv1alpha1.NodeQOSResourcesStatus) time.Duration {
	pause := interval
	if equality.Semantic.DeepEqual(withHoldersOf(before, desired), desired) {
		pause = holdersInterval
	}
	return time.Until(p.applied.at.Add(pause))
}

// withHoldersOf returns a copy of the first status with the holders of each class, the foreign settings and the refusals of
// the second status. It does not copy the holders of a class if the two statuses have different holders with the source
// "update". It does not copy the refusals if the two statuses have different refused changes. The reason is that the command
// "kubectl qos set" waits for these holders and for refused changes.
func withHoldersOf(status, other nodeqosv1alpha1.NodeQOSResourcesStatus) nodeqosv1alpha1.NodeQOSResourcesStatus {
	mixed := *status.DeepCopy()
	copyHolders(mixed.QOSResources.PodQOSResources, other.QOSResources.PodQOSResources)
	copyHolders(mixed.QOSResources.ContainerQOSResources, other.QOSResources.ContainerQOSResources)
	copyHolders(mixed.QOSResources.VolumeQOSResources, other.QOSResources.VolumeQOSResources)
	if slices.Equal(changesIn(status.Refusals), changesIn(other.Refusals)) {
		mixed.Refusals, mixed.RefusalsOmitted = other.Refusals, other.RefusalsOmitted
	}
	return mixed
}

func copyHolders(to, from []nodeqosv1alpha1.QOSResourceInfo) {
	for i := range min(len(to), len(from)) {
		to[i].Foreign, to[i].ForeignOmitted = from[i].Foreign, from[i].ForeignOmitted
		for j := range min(len(to[i].Classes), len(from[i].Classes)) {
			target, source := &to[i].Classes[j], &from[i].Classes[j]
			if slices.Equal(updated(target.Holders), updated(source.Holders)) {
				target.InUse, target.Holders, target.HoldersOmitted = source.InUse, source.Holders, source.HoldersOmitted
			}
		}
	}
}

func updated(holders []nodeqosv1alpha1.Holder) []nodeqosv1alpha1.Holder {
	return slices.DeleteFunc(slices.Clone(holders), func(h nodeqosv1alpha1.Holder) bool {
		return h.Source != qosv1alpha1.Source_SOURCE_UPDATE.Name()
	})
}

// inSync reports whether no write is needed: no heartbeat is due, and applying the desired status would change nothing. After
// an apply, the status may still differ from the desired status, because it keeps the fields of other field managers. inSync
// therefore also returns true if the object is unchanged since the publisher applied the desired status.
func (p *Publisher) inSync(object *unstructured.Unstructured, before, desired nodeqosv1alpha1.NodeQOSResourcesStatus) bool {
	if p.untilHeartbeat(before) == 0 {
		return false
	}
	return equality.Semantic.DeepEqual(before, desired) ||
		p.applied.version == object.GetResourceVersion() && equality.Semantic.DeepEqual(p.applied.status, desired)
}

func typedOf(object *unstructured.Unstructured) (typed nodeqosv1alpha1.NodeQOSResources, err error) {
	if object == nil {
		return typed, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		return nodeqosv1alpha1.NodeQOSResources{}, err
	}
	return typed, nil
}

func owned(object *unstructured.Unstructured, uid types.UID) bool {
	return object != nil && slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Kind == "Node" && o.UID == uid
	})
}

func (p *Publisher) nodeUID(ctx context.Context) (types.UID, error) {
	node, err := p.nodes.Get(ctx, p.options.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", &kubeapi.Problem{Err: err, Line: fmt.Sprintf(
			"this cluster has no node %q; set --node-name to the name of this node in \"kubectl get nodes\"", p.options.NodeName)}
	}

	if err != nil {
		return "", fmt.Errorf("get node %s: %w", p.options.NodeName, err)
	}
	return node.UID, nil
}

// identity returns the object without its status. The object's owner is the Node.
func (p *Publisher) identity() nodeqosv1alpha1.NodeQOSResources {
	return nodeqosv1alpha1.NodeQOSResources{ObjectMeta: metav1.ObjectMeta{
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.options.NodeName, UID: p.owner}},
	}}
}

func (p *Publisher) apply(ctx context.Context, object nodeqosv1alpha1.NodeQOSResources, subresource ...string) (*unstructured.Unstructured, error) {
	object.TypeMeta = metav1.TypeMeta{APIVersion: nodeqosv1alpha1.GroupVersion.String(), Kind: nodeqosv1alpha1.Kind}
	object.Name = p.options.NodeName
	patch, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode NodeQOSResources %s: %w", p.options.NodeName, err)
	}

	options := metav1.PatchOptions{FieldManager: nodeqosv1alpha1.FieldManager, Force: new(true)}
	after, err := p.objects.Patch(ctx, p.options.NodeName, types.ApplyPatchType, patch, options, subresource...)
	target := strings.Join(append([]string{nodeqosv1alpha1.Plural}, subresource...), "/")
	if p.options.Writes.Count(target, err) != nil {
		return nil, fmt.Errorf("apply %s %s: %w", target, p.options.NodeName, &kubeapi.About{Kind: kubeapi.OurKind, Err: err})
	}
	p.observed.set(after, false)
	return after, nil
}
