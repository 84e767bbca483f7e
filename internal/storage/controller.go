// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

const (
	// writeInterval is the average time between two writes for a node, after writeBurst writes without a wait. Each write makes the node
	// apply all classes of volumes and observe all containers, and every user can change the class of a claim as often as the API allows.
	writeInterval = 10 * time.Second
	writeBurst    = 5
)

// These are the names of the indexes of pods.
const (
	byNode  = "node"
	byClaim = "claim"
)

// controller keeps the spec of all NodeQOSResources objects up to date.
type controller struct {
	objects objects
	pods    cache.SharedIndexInformer
	nodes   cache.SharedIndexInformer
	// Informers has all informers, including the fields `pods` and `nodes`.
	replicated.Informers
	queue    workqueue.TypedRateLimitingInterface[string] // its keys are names of nodes
	writer   dynamic.ResourceInterface
	recorder events.EventRecorder
	log      *slog.Logger

	// reported has the present problems of the claims on each node. Only the worker uses it.
	reported map[string]map[types.UID]string
	// writes limits the writes for each node. Only the worker uses it.
	writes map[string]*rate.Limiter
}

// newController returns a controller. It starts nothing.
func newController(
	client kubernetes.Interface, nodes dynamic.Interface, recorder events.EventRecorder, drivers []string, log *slog.Logger,
) (*controller, error) {
	typed := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(Trim))
	core, storage := typed.Core().V1(), typed.Storage().V1()
	resource := nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)
	nodeObjects := dynamicinformer.NewDynamicSharedInformerFactory(nodes, 0).ForResource(resource).Informer()
	if err := nodeObjects.SetTransform(Trim); err != nil {
		return nil, fmt.Errorf("watch NodeQOSResources: %w", err)
	}
	c := &controller{
		objects: objects{
			claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
			classes: storage.VolumeAttributesClasses().Lister(), storageClasses: storage.StorageClasses().Lister(), drivers: drivers,
		},
		pods:     core.Pods().Informer(),
		nodes:    nodeObjects,
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		writer:   nodes.Resource(resource),
		recorder: recorder, log: log, reported: map[string]map[types.UID]string{}, writes: map[string]*rate.Limiter{},
	}

	if err := c.pods.AddIndexers(cache.Indexers{byNode: nodeIndex, byClaim: claimIndex}); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	return c, errors.Join(
		c.Watch(c.pods, c.enqueuePod, nil), c.Watch(c.nodes, c.enqueueNode, nil), c.Watch(core.PersistentVolumeClaims().Informer(), c.enqueueClaim, nil),
		c.Watch(core.PersistentVolumes().Informer(), c.enqueueAll, nil), c.Watch(storage.VolumeAttributesClasses().Informer(), c.enqueueAll, nil),
		c.Watch(storage.StorageClasses().Informer(), c.enqueueAll, nil),
	)
}

func nodeIndex(object any) ([]string, error) {
	if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

func claimIndex(object any) (keys []string, err error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	for i := range pod.Spec.Volumes {
		if name := claimNameOf(pod, &pod.Spec.Volumes[i]); name != "" {
			keys = append(keys, pod.Namespace+"/"+name)
		}
	}
	return keys, nil
}

func (c *controller) enqueuePod(object any) {
	pod, ok := object.(*corev1.Pod)
	claims, _ := claimIndex(object)
	if ok && pod.Spec.NodeName != "" && len(claims) > 0 {
		c.queue.AddAfter(pod.Spec.NodeName, replicated.Debounce)
	}
}

func (c *controller) enqueueNode(object any) {
	if node, ok := object.(metav1.Object); ok {
		c.queue.AddAfter(node.GetName(), replicated.Debounce)
	}
}

func (c *controller) enqueueClaim(object any) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return
	}
	pods, _ := c.pods.GetIndexer().ByIndex(byClaim, claim.Namespace+"/"+claim.Name) // fails only if there is no such index
	for _, pod := range pods {
		c.enqueuePod(pod)
	}
}

func (c *controller) enqueueAll(any) {
	for _, name := range c.nodes.GetStore().ListKeys() {
		c.queue.AddAfter(name, replicated.Debounce)
	}
}

// Run writes until ctx ends.
func (c *controller) Run(ctx context.Context) {
	c.Work(ctx, c.queue, replicated.Retrying(c.queue, func(node string) (again bool) {
		err := c.reconcile(ctx, node)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("cannot write the limits of volumes; retrying", "node", node, "problem", err)
			return true
		}
		return false
	}))
}

// reconcile writes the spec of a node's object if it is out of date. The shim of the node creates the object.
func (c *controller) reconcile(ctx context.Context, node string) error {
	object, exists, err := c.nodes.GetStore().GetByKey(node)
	if err != nil || !exists {
		delete(c.reported, node)
		delete(c.writes, node)
		return err
	}
	stored, err := c.pods.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return err
	}
	pods := make([]*corev1.Pod, 0, len(stored))
	for _, one := range stored {
		if pod, ok := one.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}

	present, err := nodeIn(object)
	spec, problems := c.objects.specOf(pods, present.Spec)
	c.report(node, problems)
	if err == nil && equality.Semantic.DeepEqual(present.Spec, spec) {
		return nil
	}
	if wait := c.untilWrite(node); wait > 0 {
		c.queue.AddAfter(node, wait) // the write then has all changes until that time
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, replicated.WriteTimeout)
	defer cancel()
	return c.write(ctx, node, spec)
}

// untilWrite returns how long the controller must wait before it may write the object of a node. If the result is 0,
// untilWrite counts a write.
func (c *controller) untilWrite(node string) time.Duration {
	limiter := c.writes[node]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Every(writeInterval), writeBurst)
		c.writes[node] = limiter
	}

	reservation := limiter.Reserve()
	wait := reservation.Delay()
	if wait > 0 {
		reservation.Cancel()
	}
	return wait
}

// nodeIn converts an object of the informer `nodes` to its Go type.
func nodeIn(object any) (typed nodeqosv1alpha1.NodeQOSResources, err error) {
	content, ok := object.(*unstructured.Unstructured)
	if !ok {
		return typed, fmt.Errorf("a %T is no NodeQOSResources", object)
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, &typed)
	return typed, err
}

func (c *controller) write(ctx context.Context, node string, spec nodeqosv1alpha1.NodeQOSResourcesSpec) error {
	object := nodeqosv1alpha1.NodeQOSResources{Spec: spec}
	object.APIVersion, object.Kind, object.Name = nodeqosv1alpha1.GroupVersion.String(), nodeqosv1alpha1.Kind, node
	patch, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode NodeQOSResources %s: %w", node, err)
	}

	options := metav1.PatchOptions{FieldManager: nodeqosv1alpha1.StorageFieldManager, Force: new(true)}
	if _, err := c.writer.Patch(ctx, node, types.ApplyPatchType, patch, options); err != nil {
		return fmt.Errorf("apply NodeQOSResources %s: %w", node, err)
	}
	c.log.Info("limits of volumes written", "node", node, "volumes", len(spec.Volumes), "classes", len(spec.VolumeClasses))
	return nil
}

// report creates an event on each claim whose problem is new on a node. If a claim has several problems, it reports the first one.
func (c *controller) report(node string, problems []problem) {
	before, now := c.reported[node], map[types.UID]string{}
	for _, p := range problems {
		if _, reported := now[p.claim.UID]; reported {
			continue
		}
		message := printable.Text(p.err.Error(), replicated.MaxNote)
		now[p.claim.UID] = message
		if before[p.claim.UID] != message {
			c.recorder.Eventf(p.claim, nil, corev1.EventTypeWarning, "VolumeAttributesClassNotEnforced", "Limit", "%s", message)
		}
	}
	if c.reported[node] = now; len(now) == 0 {
		delete(c.reported, node)
	}
}
