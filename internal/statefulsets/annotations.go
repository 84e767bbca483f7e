// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// fieldOf returns the template and the field of the StatefulSetVolumes object that an annotation of a StatefulSet requests.
func fieldOf(key string) (template, field string, found bool) {
	if template, found = strings.CutPrefix(key, nodeqosv1alpha1.StoragePrefix); found {
		return template, "storage", true
	}
	template, found = strings.CutPrefix(key, nodeqosv1alpha1.VolumeAttributesClassPrefix)
	return template, "volumeAttributesClassName", found
}

// requestsVolumes reports whether annotations with this key request something for the volumes of a StatefulSet.
func requestsVolumes(key string) bool {
	_, _, found := fieldOf(key)
	return found
}

// requestsOf returns the claim templates that the annotations of a StatefulSet request for the StatefulSetVolumes object.
// `text` has the templates as JSON. The API server checks the values when the object is written.
func requestsOf(set *appsv1.StatefulSet) (templates []map[string]string, text string, err error) {
	byName := map[string]map[string]string{}
	for key, value := range set.Annotations {
		name, field, found := fieldOf(key)
		switch {
		case !found:
			continue
		case byName[name] == nil:
			byName[name] = map[string]string{"name": name}
		}
		byName[name][field] = value
	}
	if len(byName) == 0 {
		return nil, "", nil
	}

	for _, name := range slices.Sorted(maps.Keys(byName)) {
		templates = append(templates, byName[name])
	}
	encoded, err := json.Marshal(templates)
	return templates, string(encoded), err
}

// applyAnnotations writes the requests in the annotations of a StatefulSet into the StatefulSetVolumes object, if the
// annotations have changed since the last of these writes. So the latest change wins, whether the annotations or the
// object were changed. If an object that the controller has created no longer has the StatefulSet as its owner, e.g.
// because the StatefulSet was replaced and its pods were orphaned, applyAnnotations adds the owner again. It returns
// the time after which it has to be called again. `object` is nil if it does not exist yet.
func (c *controller) applyAnnotations(ctx context.Context, set *appsv1.StatefulSet, object *unstructured.Unstructured) (again time.Duration, err error) {
	key := set.Namespace + "/" + set.Name
	templates, text, err := requestsOf(set)
	if err != nil {
		return 0, err
	}
	var write func() error
	problem := "the annotations of the StatefulSet have no effect"
	switch {
	case text != "" && (object == nil || object.GetAnnotations()[nodeqosv1alpha1.AppliedAnnotation] != text):
		write = func() error { return c.applyObject(ctx, set, object, templates, text) }
	case object != nil && createdHere(object) && !owned(object, set):
		write = func() error { return c.own(ctx, set, object) }
		problem = "the StatefulSetVolumes object is not deleted together with the StatefulSet"
	default:
		delete(c.annotations, key)
		return 0, nil
	}

	waits := c.annotations[key].Begin(string(set.UID)+text, c.now())
	c.annotations[key] = waits
	if _, failed := waits.Failed(""); !failed {
		err = c.unlessDeleted(ctx, set, write)
	}
	if err != nil {
		waits.Fail("", answer{})
		if waits.First() {
			note := printable.Text(fmt.Sprintf("%s: %v", problem, err), replicated.MaxNote)
			c.recorder.Eventf(set, nil, corev1.EventTypeWarning, EventFailedToPatch, "Resize", "%s", note)
		}
	}
	return waits.End(c.now()), err
}

// unlessDeleted calls `write`, which makes a StatefulSet the owner of an object, unless the StatefulSet is being
// deleted or was replaced. It asks the API server, because the watch cache can be older than the deletion. If the
// StatefulSet is deleted and its dependents are orphaned, the garbage collector first removes the owner from the
// object. If the owner were then added again, the object would be deleted, too.
func (c *controller) unlessDeleted(ctx context.Context, set *appsv1.StatefulSet, write func() error) error {
	reading, cancel := context.WithTimeout(ctx, replicated.WriteTimeout)
	defer cancel()
	live, err := c.client.AppsV1().StatefulSets(set.Namespace).Get(reading, set.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get StatefulSet %s/%s: %w", set.Namespace, set.Name, err)
	case live.UID != set.UID || live.DeletionTimestamp != nil:
		return nil
	}
	return write()
}

// applyObject creates or changes the StatefulSetVolumes object. An object that it has created is deleted together with the StatefulSet.
func (c *controller) applyObject(
	ctx context.Context, set *appsv1.StatefulSet, object *unstructured.Unstructured, templates []map[string]string, text string,
) error {
	annotations := map[string]any{nodeqosv1alpha1.AppliedAnnotation: text}
	metadata := map[string]any{"name": set.Name, "namespace": set.Namespace, "annotations": annotations}
	if object == nil || createdHere(object) || owned(object, set) {
		annotations[nodeqosv1alpha1.CreatedAnnotation] = "true"
		metadata["ownerReferences"] = ownerReferences(set)
	}
	err := c.write(ctx, set, fieldManager, map[string]any{"metadata": metadata, "spec": map[string]any{"volumeClaimTemplates": templates}})
	if err == nil {
		c.log.Info("annotations of a StatefulSet applied", "statefulset", set.Namespace+"/"+set.Name, "templates", text)
	}
	return err
}

func createdHere(object *unstructured.Unstructured) bool {
	return object.GetAnnotations()[nodeqosv1alpha1.CreatedAnnotation] != ""
}

func owned(object *unstructured.Unstructured, set *appsv1.StatefulSet) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == set.UID })
}

func ownerReferences(set *appsv1.StatefulSet) []any {
	return []any{map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set.Name, "uid": set.UID}}
}

// own adds the StatefulSet to the owners of an object. It uses a field manager of its own, so that the apply does not
// remove other fields of the object. A conflict means that the object was deleted or replaced meanwhile, which
// enqueues the StatefulSet.
func (c *controller) own(ctx context.Context, set *appsv1.StatefulSet, object *unstructured.Unstructured) error {
	err := c.write(ctx, set, fieldManager+"-owner", map[string]any{"metadata": map[string]any{
		"name": set.Name, "namespace": set.Namespace, "uid": object.GetUID(), "ownerReferences": ownerReferences(set),
	}})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// write applies fields of the StatefulSetVolumes object of a StatefulSet.
func (c *controller) write(ctx context.Context, set *appsv1.StatefulSet, manager string, fields map[string]any) error {
	fields["apiVersion"], fields["kind"] = nodeqosv1alpha1.GroupVersion.String(), nodeqosv1alpha1.StatefulSetVolumesKind
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode StatefulSetVolumes %s/%s: %w", set.Namespace, set.Name, err)
	}

	ctx, cancel := context.WithTimeout(ctx, replicated.WriteTimeout)
	defer cancel()
	options := metav1.PatchOptions{FieldManager: manager, Force: new(true)}
	_, err = c.dynamic.Resource(objectResource()).Namespace(set.Namespace).Patch(ctx, set.Name, types.ApplyPatchType, body, options)
	switch {
	case err == nil:
		return nil
	case kubeapi.Refused(err):
		return fmt.Errorf("the API server refuses the StatefulSetVolumes object: %w", err)
	}
	return fmt.Errorf("write StatefulSetVolumes %s/%s: %w", set.Namespace, set.Name, err)
}
