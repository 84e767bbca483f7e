// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// owner is the Node as it was when it was looked at.
type owner struct {
	uid types.UID
	// generation is that of the mirror at the time.
	generation int
}

// applied is what was written last.
type applied struct {
	status nodeqosv1alpha1.NodeQOSResourcesStatus
	// version is that of the object after it.
	version string
	at      time.Time
}

// sync makes the object in the API as the plugin's state is, with no request when it is so already.
func (p *Publisher) sync(ctx context.Context) error {
	object, generation, ok := p.mirror.get()
	if !ok {
		return kubeapi.ErrNotNow // the watch tells when there is an API server again
	}
	before, err := statusIn(object)
	if err != nil {
		p.log.Warn("NodeQOSResources in the API cannot be read and is written again", "name", p.node, "problem", err)
	}
	state, _ := p.feed.Get()
	status, ok := statusOf(state, before, p.now())
	if !ok {
		return nil
	}
	// The node is looked at before every write, and whenever the API server was away. A node that is made anew at any other time takes
	// the object with it, which the watch tells.
	if p.owner.generation == generation && owned(object, p.owner.uid) {
		wait := p.tooSoon(object, before, status)
		if p.postpone(wait); wait > 0 || p.says(object, before, status) {
			return nil
		}
	}
	if err := p.lookAtNode(ctx, generation); err != nil {
		return err
	}
	if !owned(object, p.owner.uid) {
		if object, err = p.apply(ctx, p.identity()); err != nil {
			return err
		}
		if before, err = statusIn(object); err != nil {
			before = nodeqosv1alpha1.NodeQOSResourcesStatus{}
		}
	}
	if p.says(object, before, status) {
		return nil
	}
	if object, err = p.apply(ctx, nodeqosv1alpha1.NodeQOSResources{Status: status}, "status"); err != nil {
		return err
	}
	p.applied = applied{status: status, version: object.GetResourceVersion(), at: p.now()}
	return nil
}

// tooSoon says how long a status waits that differs from the object's in nothing but holders; 0 is not at all.
func (p *Publisher) tooSoon(object *unstructured.Unstructured, before, status nodeqosv1alpha1.NodeQOSResourcesStatus) time.Duration {
	left := holdersInterval - p.now().Sub(p.applied.at)
	if left <= 0 || p.says(object, before, status) {
		return 0
	}
	if !p.says(object, withHoldersOf(before, status), status) {
		return 0
	}
	return left
}

// postpone triggers the loop in time for a run after wait; 0 is never.
func (p *Publisher) postpone(wait time.Duration) {
	if p.later != nil {
		p.later.Stop()
	}
	if wait > 0 {
		p.later = time.AfterFunc(max(wait-gather, 0), p.loop.Trigger)
	}
}

// withHoldersOf returns a status with the holders of the classes in another one. Classes of which a holder was changed while it ran keep
// theirs: whoever asked for the change waits for it.
func withHoldersOf(status, other nodeqosv1alpha1.NodeQOSResourcesStatus) nodeqosv1alpha1.NodeQOSResourcesStatus {
	mixed := *status.DeepCopy()
	copyHolders(mixed.QOSResources.PodQOSResources, other.QOSResources.PodQOSResources)
	copyHolders(mixed.QOSResources.ContainerQOSResources, other.QOSResources.ContainerQOSResources)
	return mixed
}

func copyHolders(to, from []nodeqosv1alpha1.QOSResourceInfo) {
	for i := range min(len(to), len(from)) {
		for j := range min(len(to[i].Classes), len(from[i].Classes)) {
			c, is := &to[i].Classes[j], &from[i].Classes[j]
			if slices.Equal(updated(c.Holders), updated(is.Holders)) {
				c.InUse, c.Holders, c.HoldersOmitted = is.InUse, is.Holders, is.HoldersOmitted
			}
		}
	}
}

// updated returns the holders whose class was changed while they ran.
func updated(holders []nodeqosv1alpha1.Holder) []nodeqosv1alpha1.Holder {
	var list []nodeqosv1alpha1.Holder
	for _, h := range holders {
		if h.Source == qosv1alpha1.Source_SOURCE_UPDATE.Name() {
			list = append(list, h)
		}
	}
	return list
}

// says tells whether the object has the status. It may have more that is of others, which applying once more would not take away.
func (p *Publisher) says(object *unstructured.Unstructured, before, status nodeqosv1alpha1.NodeQOSResourcesStatus) bool {
	return equality.Semantic.DeepEqual(before, status) ||
		p.applied.version == object.GetResourceVersion() && equality.Semantic.DeepEqual(p.applied.status, status)
}

// statusIn reads the status of an object, which may be nil.
func statusIn(object *unstructured.Unstructured) (nodeqosv1alpha1.NodeQOSResourcesStatus, error) {
	var typed nodeqosv1alpha1.NodeQOSResources
	if object == nil {
		return typed.Status, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		return nodeqosv1alpha1.NodeQOSResourcesStatus{}, err
	}
	return typed.Status, nil
}

func owned(object *unstructured.Unstructured, uid types.UID) bool {
	return object != nil && slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Kind == "Node" && o.UID == uid
	})
}

func (p *Publisher) lookAtNode(ctx context.Context, generation int) error {
	node, err := p.nodes.Nodes().Get(ctx, p.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &kubeapi.Problem{Err: err, Line: fmt.Sprintf(
			"this cluster has no node %q: give the name that \"kubectl get nodes\" has for this node by --node-name", p.node)}
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", p.node, err)
	}
	p.owner = owner{uid: node.UID, generation: generation}
	return nil
}

// identity is the object without its status: it goes when its node goes.
func (p *Publisher) identity() nodeqosv1alpha1.NodeQOSResources {
	return nodeqosv1alpha1.NodeQOSResources{ObjectMeta: metav1.ObjectMeta{
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.node, UID: p.owner.uid}},
	}}
}

// apply applies the object, or a subresource of it, and gives the object as it is then.
func (p *Publisher) apply(ctx context.Context, object nodeqosv1alpha1.NodeQOSResources, subresource ...string) (*unstructured.Unstructured, error) {
	object.TypeMeta = metav1.TypeMeta{APIVersion: nodeqosv1alpha1.GroupVersion.String(), Kind: nodeqosv1alpha1.Kind}
	object.Name = p.node
	content, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("make NodeQOSResources %s: %w", p.node, err)
	}
	body := &unstructured.Unstructured{}
	if err := body.UnmarshalJSON(content); err != nil {
		return nil, fmt.Errorf("make NodeQOSResources %s: %w", p.node, err)
	}
	name := nodeqosv1alpha1.Plural
	for _, s := range subresource {
		name += "/" + s
	}
	written, err := p.objects.Apply(ctx, p.node, body, metav1.ApplyOptions{FieldManager: nodeqosv1alpha1.FieldManager, Force: true}, subresource...)
	if p.writes.Count(name, err) != nil {
		return nil, fmt.Errorf("apply %s %s: %w", name, p.node, &kubeapi.About{Kind: kubeapi.OurKind, Err: err})
	}
	p.mirror.update(written, written.GetResourceVersion())
	return written, nil
}
