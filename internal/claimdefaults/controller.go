// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package claimdefaults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/internal/storage"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// EventNotSet is the reason of the event on a claim that does not get its class.
const EventNotSet = "VolumeAttributesClassNotSet"

// byStorageClass is the name of an index. It has the claims that may get a class, by their StorageClass.
const byStorageClass = "storageClass"

// controller gives claims a class. The keys of its queue are those of claims: NAMESPACE/NAME.
type controller struct {
	replicated.Informers
	claims, volumes, classes, storageClasses cache.SharedIndexInformer

	drivers  []string
	client   kubernetes.Interface
	recorder events.EventRecorder
	queue    workqueue.TypedDelayingInterface[string]
	now      func() time.Time
	log      *slog.Logger

	// reported has the present problem of each claim for which there is an event. Only the worker uses it.
	reported map[string]string
	// backoffs has the failed patch of each claim: the API server's refusal, or nil if it has not answered. Only the
	// worker uses the map.
	backoffs map[string]*replicated.Backoff[error]
}

// newController returns a controller. It starts nothing.
func newController(client kubernetes.Interface, recorder events.EventRecorder, drivers []string, log *slog.Logger) (*controller, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(storage.Trim))
	c := &controller{
		claims: factory.Core().V1().PersistentVolumeClaims().Informer(), volumes: factory.Core().V1().PersistentVolumes().Informer(),
		classes:        factory.Storage().V1().VolumeAttributesClasses().Informer(),
		storageClasses: factory.Storage().V1().StorageClasses().Informer(),
		drivers:        drivers, client: client, recorder: recorder, queue: replicated.NewQueue(), now: time.Now, log: log,
		reported: map[string]string{}, backoffs: map[string]*replicated.Backoff[error]{},
	}
	if err := c.claims.AddIndexers(cache.Indexers{byStorageClass: storageClassIndex}); err != nil {
		return nil, fmt.Errorf("index claims: %w", err)
	}
	return c, errors.Join(
		c.Watch(c.claims, c.enqueue, nil), c.Watch(c.volumes, c.enqueueVolume, nil),
		c.Watch(c.classes, c.enqueueAll, nil), c.Watch(c.storageClasses, c.enqueueStorageClass, nil),
	)
}

func storageClassIndex(object any) ([]string, error) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && mayGetClass(claim) && claim.Spec.StorageClassName != nil {
		return []string{*claim.Spec.StorageClassName}, nil
	}
	return nil, nil
}

func (c *controller) enqueue(object any) {
	if claim, ok := object.(metav1.Object); ok {
		c.queue.AddAfter(claim.GetNamespace()+"/"+claim.GetName(), replicated.Debounce)
	}
}

func (c *controller) enqueueVolume(object any) {
	if volume, ok := object.(*corev1.PersistentVolume); ok && volume.Spec.ClaimRef != nil {
		c.queue.AddAfter(volume.Spec.ClaimRef.Namespace+"/"+volume.Spec.ClaimRef.Name, replicated.Debounce)
	}
}

func (c *controller) enqueueStorageClass(object any) {
	class, ok := object.(*storagev1.StorageClass)
	if !ok {
		return
	}
	keys, _ := c.claims.GetIndexer().IndexKeys(byStorageClass, class.Name) // fails only if there is no such index
	for _, key := range keys {
		c.queue.AddAfter(key, replicated.Debounce)
	}
}

func (c *controller) enqueueAll(any) {
	for _, class := range c.storageClasses.GetStore().List() {
		c.enqueueStorageClass(class)
	}
}

// Run reconciles until ctx ends.
func (c *controller) Run(ctx context.Context) {
	c.Work(ctx, c.queue, func(ctx context.Context, key string) time.Duration {
		again, err := c.reconcile(ctx, key)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("cannot set the class of a claim; retrying", "claim", key, "problem", err, "after", again)
		}
		return again
	})
}

// reconcile gives a claim its class, if it names none. It returns the time after which it has to be called again, or 0 if only events
// require another call.
func (c *controller) reconcile(ctx context.Context, key string) (again time.Duration, err error) {
	claim, err := replicated.Get[*corev1.PersistentVolumeClaim](c.claims, key)
	if err != nil || claim == nil {
		delete(c.reported, key)
		delete(c.backoffs, key)
		return 0, err
	}

	name, problem := choose(claim, c.surroundingsOf(claim), c.drivers)
	if name == "" {
		delete(c.backoffs, key)
		c.report(key, claim, problem)
		return 0, nil
	}

	waits := c.backoffs[key].Begin(string(claim.UID)+"/"+name, c.now())
	c.backoffs[key] = waits
	refusal, failed := waits.Failed(name)
	if !failed {
		if refusal, err = c.patch(ctx, claim, name); refusal != nil || err != nil {
			waits.Fail(name, refusal)
		}
	}
	if refusal != nil {
		problem = refusal
	}
	if _, failed = waits.Failed(name); refusal != nil || !failed { // if the API server has not answered, the reported problem does not change
		c.report(key, claim, problem)
	}
	return waits.End(c.now()), err
}

// surroundingsOf returns the objects that determine the class of a claim.
func (c *controller) surroundingsOf(claim *corev1.PersistentVolumeClaim) (around surroundings) {
	around.volume, _ = replicated.Get[*corev1.PersistentVolume](c.volumes, claim.Spec.VolumeName) // the store has only volumes, and no errors
	if claim.Spec.StorageClassName != nil {
		around.storageClass, _ = replicated.Get[*storagev1.StorageClass](c.storageClasses, *claim.Spec.StorageClassName)
	}
	for _, object := range c.classes.GetStore().List() {
		if class, ok := object.(*storagev1.VolumeAttributesClass); ok {
			around.classes = append(around.classes, class)
		}
	}
	slices.SortFunc(around.classes, func(a, b *storagev1.VolumeAttributesClass) int { return strings.Compare(a.Name, b.Name) })
	return around
}

// patch sets the class of a claim. The API server refuses the patch if the claim is another one or has changed, e.g.
// if its user has chosen a class at the same time. `refusal` is the answer of an API server that refuses the class.
func (c *controller) patch(ctx context.Context, claim *corev1.PersistentVolumeClaim, class string) (refusal, err error) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion},
		"spec":     map[string]any{"volumeAttributesClassName": class},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, replicated.WriteTimeout)
	defer cancel()
	options := metav1.PatchOptions{FieldManager: name}
	_, err = c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, body, options)
	switch {
	case err == nil:
		c.log.Info("class of a claim set", "claim", claim.Namespace+"/"+claim.Name, "class", class)
		return nil, nil
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // the change is enqueued
		return nil, nil
	case kubeapi.Refused(err):
		return fmt.Errorf("the API server refuses VolumeAttributesClass %q: %w", class, err), nil
	}
	return nil, err
}

// report creates an event on a claim if its problem is new.
func (c *controller) report(key string, claim *corev1.PersistentVolumeClaim, problem error) {
	if problem == nil {
		delete(c.reported, key)
		return
	}
	if message := printable.Text(problem.Error(), replicated.MaxNote); c.reported[key] != message {
		c.reported[key] = message
		c.recorder.Eventf(claim, nil, corev1.EventTypeWarning, EventNotSet, "SetClass", "%s", message)
	}
}
