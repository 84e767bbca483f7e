// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

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
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// fieldManager is the field manager of the patches of claims and of the status.
const fieldManager = name

// Reasons of the events on StatefulSets. EventFailedToPatch is that of KEP-0661; the others are those of the external-resizer's events
// on claims.
const (
	EventFailedToPatch = "FailedToPatchPVC"
	EventResizeFailed  = "VolumeResizeFailed"
	EventModifyFailed  = "VolumeModifyFailed"
)

func objectResource() schema.GroupVersionResource {
	return nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.StatefulSetVolumesPlural)
}

// reconcile patches the claims of a StatefulSet that may be patched now, and writes the status of the StatefulSetVolumes object. The
// result `again` is true if the API server has refused a patch, so that the patch has to be tried again later.
func (c *controller) reconcile(ctx context.Context, key string) (again bool, err error) {
	content, err := get[*unstructured.Unstructured](c.objects, key)
	if err != nil || content == nil || content.GetDeletionTimestamp() != nil {
		delete(c.reported, key)
		return false, err
	}
	object, err := readObject(content)
	if err != nil {
		return false, fmt.Errorf("read StatefulSetVolumes %s: %w", key, err)
	}
	s, err := c.snapshotOf(key)
	if err != nil {
		return false, err
	}

	result := outcome{missing: s == nil}
	var failures []error
	if s != nil {
		result.steps, result.replicas = plan(*s, object.Spec), replicaCount(s.set)
		for i := range result.steps {
			refusal, err := c.execute(ctx, &result.steps[i])
			again = again || refusal
			failures = append(failures, err)
		}
		c.report(key, s.set, result.steps)
	}

	if status := statusOf(object, result); !equality.Semantic.DeepEqual(object.Status, status) {
		failures = append(failures, c.writeStatus(ctx, object, status))
	}
	return again, errors.Join(failures...)
}

var size = regexp.MustCompile(nodeqosv1alpha1.SizePattern)

// readObject reads an object. A template whose size does not match the pattern keeps only its name: an object can be older than the
// pattern, and to parse or compare a size with an exponent can take hours.
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

// execute patches a claim if the step has a patch. If the API server refuses the patch, execute changes the phase of the step.
func (c *controller) execute(ctx context.Context, s *step) (refusal bool, err error) {
	if s.phase != patchable {
		return false, nil
	}
	body, err := s.patch.body()
	if err != nil {
		return false, fmt.Errorf("encode the patch of claim %s: %w", s.claim, err)
	}

	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
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
		return true, nil
	default:
		s.phase, s.message = changing, "the API server does not answer; the change is requested again"
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

	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
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
		note := printable.Text(fmt.Sprintf("claim %s: %s", s.claim, s.message), maxMessage)
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
