// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// resizeProgress is the progress that await has printed.
type resizeProgress struct {
	replicas map[string]string // by pod
	message  string
	noticed  bool // true after the note that the command waits
}

// await prints the progress of a generation of the object until all volumes are ready. It returns an error if a person has to act.
func (o *resizeCommand) await(ctx context.Context, api *clients, set *appsv1.StatefulSet, generation int64) error {
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	start, last := o.now(), "qos-storage resize has not seen the request; check that it runs: docs/storage/kep-0661.md"
	progress := resizeProgress{replicas: map[string]string{}}
	for {
		object, err := api.getVolumes(waiting, o.name)
		switch {
		case err != nil && ctx.Err() == nil && waiting.Err() == nil && !retriable(err):
			return fmt.Errorf("%s; the result is unknown: %w", o.subject(), explainVolumes(err))
		case err == nil && object.Generation != generation:
			return fmt.Errorf("%s was changed by another client meanwhile; see kubectl get statefulsetvolumes %s", o.subject(), o.name)
		case err == nil && object.Status.ObservedGeneration == generation:
			o.printReplicas(waiting, api, set, &progress)
			done, message, failure := resultOf(object)
			if done || failure != nil {
				return o.result(message, failure)
			}
			if last = message; message != progress.message && progress.message != "" {
				o.print("statefulset/%s: %s\n", o.name, message)
			}
			progress.message = message
		case !progress.noticed && o.now().Sub(start) >= noticeTime:
			fmt.Fprintf(o.streams.ErrOut, "Waiting up to %s for qos-storage resize to see the request\n", o.timeout)
			progress.noticed = true
		}

		if over(waiting) {
			if ctx.Err() != nil {
				return fmt.Errorf("%s; interrupted before the result was known; the request stays", o.subject())
			}
			return fmt.Errorf("%s; not done within %s: %s; the request stays", o.subject(), o.timeout, last)
		}
		o.pause(waiting, pollInterval)
	}
}

func (o *resizeCommand) result(message string, failure error) error {
	if failure != nil {
		return fmt.Errorf("%s; %w; the request stays", o.subject(), failure)
	}
	o.print("statefulset/%s: %s\n", o.name, message)
	return nil
}

// retriable reports whether the object is read again after an error.
func retriable(err error) bool {
	switch kubeapi.OutcomeOf(err) { //nolint:exhaustive // another attempt fails too after the other outcomes
	case kubeapi.Unavailable, kubeapi.TooMany, kubeapi.Failed:
		return true
	}
	return false
}

// resultOf returns whether all volumes are ready, the message about them, and the reason why a person has to act.
func resultOf(object *nodeqosv1alpha1.StatefulSetVolumes) (done bool, message string, failure error) {
	ready := meta.FindStatusCondition(object.Status.Conditions, nodeqosv1alpha1.ConditionVolumesReady)
	switch {
	case ready == nil:
		return false, "there is no status yet", nil
	case meta.IsStatusConditionTrue(object.Status.Conditions, nodeqosv1alpha1.ConditionVolumesStalled):
		return false, ready.Message, errors.New(ready.Reason + ": " + ready.Message)
	}
	return ready.Status == metav1.ConditionTrue, ready.Message, nil
}

// printReplicas prints a line for each replica whose claim has changed.
func (o *resizeCommand) printReplicas(ctx context.Context, api *clients, set *appsv1.StatefulSet, progress *resizeProgress) {
	start := 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	list, err := api.core.CoreV1().PersistentVolumeClaims(api.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return // the user may lack the permission; the message of the object has the number of ready replicas
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for i := range list.Items {
		claims[list.Items[i].Name] = &list.Items[i]
	}
	for i := range replicasOf(set) {
		pod := fmt.Sprintf("%s-%d", set.Name, start+i)
		claim := claims[o.template+"-"+pod]
		if claim == nil {
			continue
		}
		if state := o.stateOf(claim); state != progress.replicas[pod] {
			o.print("replica %s: %s\n", pod, state)
			progress.replicas[pod] = state
		}
	}
}

// stateOf returns how far the change of a claim is.
func (o *resizeCommand) stateOf(claim *corev1.PersistentVolumeClaim) string {
	requested, capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	class, current := valueOf(claim.Spec.VolumeAttributesClassName), valueOf(claim.Status.CurrentVolumeAttributesClassName)
	pending := o.class != "" && class != o.class
	changing := o.class != "" && current != o.class
	if o.storage != "" {
		wanted := resource.MustParse(o.storage) // read has checked it
		pending = pending || requested.Cmp(wanted) < 0
		changing = changing || capacity.Cmp(wanted) < 0
	}

	text := "storage " + capacity.String()
	if o.class != "" {
		text += ", volume attributes class " + orNothing(current)
	}
	switch {
	case pending:
		return "waits; " + text
	case changing:
		return "requested; " + text
	}
	return "ready; " + text
}

func (c *clients) getVolumes(ctx context.Context, name string) (*nodeqosv1alpha1.StatefulSetVolumes, error) {
	content, err := c.objects.Resource(volumesKind()).Namespace(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return typed[nodeqosv1alpha1.StatefulSetVolumes](content)
}
