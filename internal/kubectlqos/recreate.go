// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// recreateTimeout is the maximum time between the deletion of a StatefulSet and the creation of its successor.
const recreateTimeout = time.Minute

// planRecreation returns the StatefulSet that will replace the present one. Its field UID is that of the present one.
// The API server checks the deletion and the creation by dry runs.
func (o *resizeCommand) planRecreation(ctx context.Context, api *clients, set *appsv1.StatefulSet) (*appsv1.StatefulSet, error) {
	next := o.successor(set)
	if o.dryRun == dryRunClient {
		return next, nil
	}
	options := orphaning(set)
	options.DryRun = []string{metav1.DryRunAll}
	sets := api.core.AppsV1().StatefulSets(api.namespace)
	if err := sets.Delete(ctx, set.Name, options); err != nil {
		return nil, fmt.Errorf("statefulset %s cannot be deleted: %w", set.Name, explain(err))
	}
	// The API server checks a new object before it finds that the name is in use.
	_, err := sets.Create(ctx, created(next), metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("statefulset %s cannot be created again: %w", set.Name, explain(err))
	}
	return next, nil
}

// successor returns a StatefulSet whose claim template has the requested values, without the annotations that request them.
func (o *resizeCommand) successor(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	next := set.DeepCopy()
	template := templateOf(next, o.template)
	if o.storage != "" {
		if template.Spec.Resources.Requests == nil {
			template.Spec.Resources.Requests = corev1.ResourceList{}
		}
		template.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(o.storage) // read has checked it
		delete(next.Annotations, nodeqosv1alpha1.StoragePrefix+o.template)
	}
	if o.class != "" {
		template.Spec.VolumeAttributesClassName = &o.class
		delete(next.Annotations, nodeqosv1alpha1.VolumeAttributesClassPrefix+o.template)
	}
	return next
}

// orphaning returns the options to delete a StatefulSet without its pods and claims, unless the StatefulSet has
// changed.
func orphaning(set *appsv1.StatefulSet) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan), Preconditions: metav1.NewUIDPreconditions(string(set.UID))}
}

// created returns a StatefulSet without the fields that belong to a stored object.
func created(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	set = set.DeepCopy()
	set.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}
	set.ObjectMeta = metav1.ObjectMeta{
		Namespace: set.Namespace, Name: set.Name, Labels: set.Labels, Annotations: set.Annotations, OwnerReferences: set.OwnerReferences,
		Finalizers: set.Finalizers,
	}
	set.Status = appsv1.StatefulSetStatus{}
	return set
}

// replace deletes the StatefulSet without its pods and claims, and creates its successor. Before that, it stores the
// manifest of the successor in a file, which stays if the creation fails.
func (o *resizeCommand) replace(ctx context.Context, api *clients, planned *appsv1.StatefulSet) error {
	present, err := api.getStatefulSet(ctx, o.name)
	if err != nil {
		return err
	}
	if present.UID != planned.UID || present.DeletionTimestamp != nil {
		return fmt.Errorf("statefulset %s was replaced or deleted by another client; its volumes are resized", o.name)
	}
	next := created(o.successor(present)) // with the changes since the plan, e.g. of the replicas
	file, err := store(next)
	if err != nil {
		return err
	}

	o.print("the manifest of the new statefulset/%s is in %s until it is created\n", o.name, file)

	// An interrupt must not end the command from here on: the API server could delete the StatefulSet after the command
	// has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recreateTimeout)
	defer cancel()
	options := orphaning(present)
	options.Preconditions.ResourceVersion = &present.ResourceVersion
	err = api.core.AppsV1().StatefulSets(api.namespace).Delete(ctx, o.name, options)
	switch {
	case kubeapi.Refused(err):
		_ = os.Remove(file) // nothing has happened
		return fmt.Errorf("statefulset %s cannot be deleted; nothing was replaced: %w", o.name, explain(err))
	case err != nil:
		return fmt.Errorf("it is unknown whether statefulset %s was deleted (its pods and claims stay); if it was, create it again with: "+
			"kubectl create -f %s: %w", o.name, file, explain(err))
	}
	if err := o.create(ctx, api, next, present.UID); err != nil {
		return fmt.Errorf("statefulset %s is deleted, and its pods and claims stay; create it again with: kubectl create -f %s: %w", o.name, file, err)
	}
	_ = os.Remove(file) // the file is no longer needed
	o.print("statefulset/%s replaced; its pods and claims stay\n", o.name)
	return nil
}

// create creates a StatefulSet as soon as its predecessor is gone. If the answer to an earlier attempt was lost, a
// StatefulSet with the requested template exists already.
func (o *resizeCommand) create(ctx context.Context, api *clients, set *appsv1.StatefulSet, predecessor types.UID) error {
	sets := api.core.AppsV1().StatefulSets(api.namespace)
	for {
		_, err := sets.Create(ctx, set, metav1.CreateOptions{FieldManager: fieldManager})
		switch {
		case err == nil:
			return nil
		case apierrors.IsAlreadyExists(err):
			present, failure := sets.Get(ctx, set.Name, metav1.GetOptions{})
			switch {
			case failure != nil || present.UID == predecessor:
			case o.hasRequest(present):
				return nil
			default:
				return errors.New("another client has already created a statefulset with this name, but not with this template")
			}
		case !kubeapi.ServerFailed(err):
			return explain(err)
		}
		if over(ctx) {
			return explain(err)
		}
		o.pause(ctx, pollInterval)
	}
}

// hasRequest reports whether the claim template of a StatefulSet has the requested values.
func (o *resizeCommand) hasRequest(set *appsv1.StatefulSet) bool {
	if !slices.Contains(templatesOf(set), o.template) {
		return false
	}
	before, after := templateOf(set, o.template), templateOf(o.successor(set), o.template)
	return before.Spec.Resources.Requests.Storage().Cmp(*after.Spec.Resources.Requests.Storage()) == 0 &&
		valueOf(before.Spec.VolumeAttributesClassName) == valueOf(after.Spec.VolumeAttributesClassName)
}

// store writes the manifest of a StatefulSet to a new file, and returns the name of the file.
func store(set *appsv1.StatefulSet) (name string, err error) {
	text, err := yaml.Marshal(set)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp("", "statefulset-"+strings.ReplaceAll(set.Name, ".", "-")+"-*.yaml")
	if err != nil {
		return "", fmt.Errorf("store the manifest of the StatefulSet: %w", err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("store the manifest of the StatefulSet: %w", err)
	}
	return file.Name(), nil
}
