// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// fieldManager is the field manager of the patches of claims and of the status.
const fieldManager = name

// Reasons of the events on StatefulSets. EventFailedToPatch is a reason of KEP-0661. The external-resizer uses the
// other reasons in its events on claims.
const (
	EventFailedToPatch = "FailedToPatchPVC"
	EventResizeFailed  = "VolumeResizeFailed"
	EventModifyFailed  = "VolumeModifyFailed"
)

func objectResource() schema.GroupVersionResource {
	return nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.StatefulSetVolumesPlural)
}

// reconcile writes the StatefulSetVolumes object that the annotations of a StatefulSet request, patches the claims that may be patched now,
// and writes the status of the object. It returns the time after which it has to be called again, or 0 if only events require another call.
func (c *controller) reconcile(ctx context.Context, key string) (again time.Duration, err error) {
	set, err := replicated.Get[*appsv1.StatefulSet](c.sets, key)
	if err != nil {
		return replicated.MaxRetry, err
	}
	content, err := replicated.Get[*unstructured.Unstructured](c.objects, key)
	if err != nil {
		return replicated.MaxRetry, err
	}

	var failure error
	if set != nil && set.DeletionTimestamp == nil {
		again, failure = c.applyAnnotations(ctx, set, content)
	} else {
		delete(c.annotations, key)
	}
	if content == nil || content.GetDeletionTimestamp() != nil {
		delete(c.reported, key)
		delete(c.backoffs, key)
		return again, failure
	}
	retry, err := c.resize(ctx, key, set, content)
	return sooner(again, retry), errors.Join(failure, err)
}

// sooner returns the shorter one of two times. A time of 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// resize patches the claims of a StatefulSet and writes the status of the StatefulSetVolumes object. `set` is nil if there is no StatefulSet.
func (c *controller) resize(ctx context.Context, key string, set *appsv1.StatefulSet, content *unstructured.Unstructured) (again time.Duration, err error) {
	object, err := readObject(content)
	if err != nil {
		return replicated.MaxRetry, fmt.Errorf("read StatefulSetVolumes %s: %w", key, err)
	}
	waits := c.backoffs[key].Begin(fmt.Sprintf("%s/%d", object.UID, object.Generation), c.now())
	c.backoffs[key] = waits
	result := outcome{missing: set == nil}
	if set != nil {
		s, err := c.snapshotOf(set)
		if err != nil {
			return replicated.MaxRetry, err
		}
		result.steps, result.replicas = plan(*s, object.Spec), replicaCount(set)
	}

	again, err = c.patch(ctx, result.steps, waits)
	if set != nil {
		c.report(key, set, result.steps)
	}
	_, failed := waits.Failed("")
	if status := statusOf(object, result); !failed && !equality.Semantic.DeepEqual(object.Status, status) {
		if failure := c.writeStatus(ctx, object, status); failure != nil {
			waits.Fail("", answer{})
			err = errors.Join(err, failure)
		}
	}
	return sooner(again, waits.End(c.now())), err
}

// patch patches the claims of the steps that have a patch. If there are more of them than one reconcile may patch, or if a claim has changed
// in the meantime, it returns the time after which the reconcile is repeated.
func (c *controller) patch(ctx context.Context, steps []step, waits *backoff) (again time.Duration, err error) {
	sent := 0
	for i := range steps {
		s := &steps[i]
		if s.phase != patchable {
			continue
		}
		before, held := waits.Failed(s.claim)
		switch {
		case held:
			s.phase, s.message = before.phase, before.message
			continue
		case err != nil:
			s.phase, s.message = changing, messageNoAnswer
			waits.Fail(s.claim, answer{s.phase, s.message})
			continue
		case sent == maxPatches:
			s.phase, s.message, again = queued, "waits for the claims of other replicas", replicated.Debounce
			continue
		}

		sent++
		var conflict bool
		conflict, err = c.execute(ctx, s)
		switch {
		case conflict:
			again = max(again, replicated.MinRetry)
		case err != nil || s.phase == refused:
			waits.Fail(s.claim, answer{s.phase, s.message})
		}
	}
	return again, err
}

var size = regexp.MustCompile(nodeqosv1alpha1.SizePattern)

// readObject reads an object. A template whose size does not match the pattern keeps only its name. An object can have
// such a size if it is older than the pattern, and parsing or comparing a size with an exponent can take hours.
func readObject(content *unstructured.Unstructured) (*nodeqosv1alpha1.StatefulSetVolumes, error) {
	content = content.DeepCopy()
	templates, _, _ := unstructured.NestedFieldNoCopy(content.Object, "spec", "volumeClaimTemplates")
	list, _ := templates.([]any) // the conversion below reports other types
	for _, item := range list {
		template, _ := item.(map[string]any)
		if text, ok := template["storage"]; ok && !size.MatchString(fmt.Sprint(text)) {
			delete(template, "storage")
			delete(template, "volumeAttributesClassName")
		}
	}

	object := &nodeqosv1alpha1.StatefulSetVolumes{}
	return object, runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, object)
}

// messageNoAnswer is the message of a step whose patch has failed without an answer of the API server.
const messageNoAnswer = "the API server does not answer; the change is requested again"

// execute sends the patch of a step, and sets the phase of the step to the result. `conflict` is true if the claim has changed in the meantime.
func (c *controller) execute(ctx context.Context, s *step) (conflict bool, err error) {
	body, err := s.patch.body()
	if err != nil {
		return false, fmt.Errorf("encode the patch of claim %s: %w", s.claim, err)
	}

	ctx, cancel := context.WithTimeout(ctx, replicated.WriteTimeout)
	defer cancel()
	options := metav1.PatchOptions{FieldManager: fieldManager}
	namespace := s.patch.claim.Namespace
	_, err = c.client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, s.claim, types.MergePatchType, body, options)
	switch {
	case err == nil:
		c.log.Info("claim patched", "claim", namespace+"/"+s.claim, "patch", string(body))
		s.phase = changing
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		s.phase, s.message = changing, "the claim has changed; the change is requested again"
		return true, nil
	case kubeapi.Refused(err):
		s.phase, s.message = refused, "the API server refuses the change: "+err.Error()
		return false, nil
	default:
		s.phase, s.message = changing, messageNoAnswer
		return false, fmt.Errorf("patch claim %s/%s: %w", namespace, s.claim, err)
	}
	return false, nil
}

// body returns the JSON merge patch. The API server refuses it as a conflict if the claim is another one or has changed, e.g. if
// somebody makes it larger at the same time.
func (p patch) body() ([]byte, error) {
	spec := map[string]any{}
	if p.storage != nil {
		spec["resources"] = map[string]any{"requests": map[string]any{string(corev1.ResourceStorage): p.storage.String()}}
	}
	if p.class != "" {
		spec["volumeAttributesClassName"] = p.class
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.claim.UID, "resourceVersion": p.claim.ResourceVersion}, "spec": spec,
	})
}

func (c *controller) writeStatus(ctx context.Context, object *nodeqosv1alpha1.StatefulSetVolumes, status nodeqosv1alpha1.StatefulSetVolumesStatus) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": nodeqosv1alpha1.GroupVersion.String(), "kind": nodeqosv1alpha1.StatefulSetVolumesKind,
		"metadata": map[string]any{"name": object.Name, "namespace": object.Namespace, "uid": object.UID}, "status": status,
	})
	if err != nil {
		return fmt.Errorf("encode the status of StatefulSetVolumes %s/%s: %w", object.Namespace, object.Name, err)
	}

	ctx, cancel := context.WithTimeout(ctx, replicated.WriteTimeout)
	defer cancel()
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: new(true)}
	objects := c.dynamic.Resource(objectResource()).Namespace(object.Namespace)
	_, err = objects.Patch(ctx, object.Name, types.ApplyPatchType, body, options, "status")
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // the object was deleted; its successor is enqueued
		return nil
	case err != nil:
		return fmt.Errorf("write the status of StatefulSetVolumes %s/%s: %w", object.Namespace, object.Name, err)
	}
	return nil
}

// report creates an event on the StatefulSet for each claim with a new problem. A problem that a driver reports again after a retry is
// not new, unless the volume was ready between.
func (c *controller) report(key string, set *appsv1.StatefulSet, steps []step) {
	reported := c.reported[key]
	if reported == nil {
		reported = map[string]string{}
		c.reported[key] = reported
	}
	for i := range steps {
		s := &steps[i]
		if s.phase == ready {
			delete(reported, s.claim)
		}
		if !s.phase.stalled() || reported[s.claim] == s.message {
			continue
		}
		reported[s.claim] = s.message
		note := printable.Text(fmt.Sprintf("claim %s: %s", s.claim, s.message), replicated.MaxNote)
		c.recorder.Eventf(set, nil, corev1.EventTypeWarning, s.event(), "Resize", "%s", note)
	}
}

func (s *step) event() string {
	switch {
	case s.phase == failed && s.modify:
		return EventModifyFailed
	case s.phase == failed:
		return EventResizeFailed
	}
	return EventFailedToPatch
}
