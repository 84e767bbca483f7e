// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
)

// maxPatches is the maximum number of patches in one reconcile, so that other StatefulSets do not wait for a large one.
const maxPatches = 20

// backoff has the answers to failed patches of claims, by claim. The key "" stands for the write of the object or of
// its status.
type backoff = replicated.Backoff[answer]

// answer is the phase and the message of a step whose patch has failed.
type answer struct {
	phase   phase
	message string
}

// byClaim is the name of the index of pods by their claims.
const byClaim = "claim"

// controller reconciles StatefulSetVolumes objects. The keys of all stores and of the queue have the form NAMESPACE/NAME.
type controller struct {
	replicated.Informers
	objects, sets, pods, claims, storageClasses cache.SharedIndexInformer

	client   kubernetes.Interface
	dynamic  dynamic.Interface
	recorder events.EventRecorder
	queue    workqueue.TypedDelayingInterface[string]
	now      func() time.Time
	log      *slog.Logger

	// reported has, for each key, the present problems of claims for which there is an event. Only the worker uses it.
	reported map[string]map[string]string
	// backoffs has, for each key, the failed writes of claims and of the status. `annotations` has the failed writes of
	// objects that annotations of StatefulSets request. Only the worker uses them.
	backoffs, annotations map[string]*backoff
}

// newController returns a controller. It starts nothing.
func newController(client kubernetes.Interface, objects dynamic.Interface, recorder events.EventRecorder, log *slog.Logger) (*controller, error) {
	typed := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	untyped := dynamicinformer.NewDynamicSharedInformerFactory(objects, 0)
	c := &controller{
		objects: untyped.ForResource(objectResource()).Informer(), sets: typed.Apps().V1().StatefulSets().Informer(),
		pods: typed.Core().V1().Pods().Informer(), claims: typed.Core().V1().PersistentVolumeClaims().Informer(),
		storageClasses: typed.Storage().V1().StorageClasses().Informer(),
		client:         client, dynamic: objects, recorder: recorder, queue: replicated.NewQueue(), now: time.Now, log: log,
		reported: map[string]map[string]string{}, backoffs: map[string]*backoff{}, annotations: map[string]*backoff{},
	}
	if err := c.objects.SetTransform(trim); err != nil {
		return nil, fmt.Errorf("watch StatefulSetVolumes: %w", err)
	}
	if err := c.pods.AddIndexers(cache.Indexers{byClaim: claimIndex}); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	return c, c.watch()
}

func (c *controller) watch() error {
	return errors.Join(
		c.Watch(c.objects, c.enqueue, unchanged), c.Watch(c.sets, c.enqueue, nil), c.Watch(c.pods, c.enqueuePod, nil),
		c.Watch(c.claims, c.enqueueClaim, nil), c.Watch(c.storageClasses, c.enqueueAll, nil),
	)
}

// unchanged reports whether neither the spec nor the owners of an object have changed, e.g. because the controller itself
// has written the status.
func unchanged(before, now any) bool {
	a, ok := before.(metav1.Object)
	b, same := now.(metav1.Object)
	return ok && same && a.GetGeneration() == b.GetGeneration() && slices.EqualFunc(a.GetOwnerReferences(), b.GetOwnerReferences(),
		func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
}

// claimIndex returns the claims of a pod of a StatefulSet.
func claimIndex(object any) (keys []string, err error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			keys = append(keys, pod.Namespace+"/"+claim.ClaimName)
		}
	}
	return keys, nil
}

// enqueue enqueues the key of a StatefulSet or of a StatefulSetVolumes object.
func (c *controller) enqueue(object any) {
	if o, ok := object.(metav1.Object); ok {
		c.queue.AddAfter(o.GetNamespace()+"/"+o.GetName(), replicated.Debounce)
	}
}

func (c *controller) enqueuePod(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "StatefulSet" {
		c.queue.AddAfter(pod.Namespace+"/"+owner.Name, replicated.Debounce)
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
	for _, key := range c.objects.GetStore().ListKeys() {
		c.queue.AddAfter(key, replicated.Debounce)
	}
}

// Run reconciles until ctx ends.
func (c *controller) Run(ctx context.Context) {
	c.Work(ctx, c.queue, func(ctx context.Context, key string) time.Duration {
		again, err := c.reconcile(ctx, key)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("cannot change the volumes of a StatefulSet; retrying", "statefulset", key, "problem", err, "after", again)
		}
		return again
	})
}

// snapshotOf returns the objects that determine the state of a StatefulSet's volumes. It has no pods and claims if
// there are too many.
func (c *controller) snapshotOf(set *appsv1.StatefulSet) (*snapshot, error) {
	s := &snapshot{set: set, pods: map[string]*corev1.Pod{}, claims: map[string]*corev1.PersistentVolumeClaim{}, expandable: map[string]bool{}}
	if tooManyVolumes(set) {
		return s, nil
	}
	for name := range replicas(set) {
		pod, err := replicated.Get[*corev1.Pod](c.pods, set.Namespace+"/"+name)
		if err != nil {
			return nil, err
		}
		if pod != nil {
			s.pods[name] = pod
		}
		for i := range set.Spec.VolumeClaimTemplates {
			claim, err := replicated.Get[*corev1.PersistentVolumeClaim](c.claims, set.Namespace+"/"+set.Spec.VolumeClaimTemplates[i].Name+"-"+name)
			if err != nil {
				return nil, err
			}
			if claim != nil {
				s.claims[claim.Name] = claim
			}
		}
	}
	for _, object := range c.storageClasses.GetStore().List() {
		if class, ok := object.(*storagev1.StorageClass); ok && class.AllowVolumeExpansion != nil {
			s.expandable[class.Name] = *class.AllowVolumeExpansion
		}
	}
	return s, nil
}
