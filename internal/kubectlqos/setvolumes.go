// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// showSets prints what StatefulSetVolumes objects request, and how many replicas have it. It prints nothing if the
// cluster has no such kind, or if the user may not list it.
func (o *podsCommand) showSets(ctx context.Context, api *clients, namespace string, more bool) (shown bool, err error) {
	list, err := api.objects.Resource(volumesKind()).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return false, nil
	}
	slices.SortFunc(list.Items, byName)

	columns := []string{"STATEFULSET", "TEMPLATE", "STORAGE", "CLASS", "READY REPLICAS", "WHY"}
	if o.everywhere {
		columns = slices.Insert(columns, 0, "NAMESPACE")
	}
	var lines [][]string
	for i := range list.Items {
		object, err := typed[nodeqosv1alpha1.StatefulSetVolumes](&list.Items[i])
		if err != nil {
			return false, err
		}
		for _, cells := range setRows(object) {
			if o.everywhere {
				cells = slices.Insert(cells, 0, object.Namespace)
			}
			lines = append(lines, cells)
		}
	}
	text, err := newTablePrinter(o.wide(), columns...).format(lines)
	if more {
		text = "\n" + text
	}
	fmt.Fprint(o.streams.Out, text)
	return true, err
}

// setRows returns a row for each claim template that an object names.
func setRows(object *nodeqosv1alpha1.StatefulSetVolumes) (rows [][]string) {
	why := "qos-storage resize has not seen the request"
	if ready := meta.FindStatusCondition(object.Status.Conditions, nodeqosv1alpha1.ConditionVolumesReady); ready != nil &&
		object.Status.ObservedGeneration == object.Generation {
		why = ready.Reason
		if ready.Status != metav1.ConditionTrue {
			why += ": " + ready.Message
		}
	}
	for _, template := range object.Spec.VolumeClaimTemplates {
		storage, replicas := "", ""
		if template.Storage != nil {
			storage = template.Storage.String()
		}
		for _, s := range object.Status.VolumeClaimTemplates {
			if s.TemplateName == template.Name {
				replicas = strconv.Itoa(int(s.ReadyReplicas))
			}
		}
		rows = append(rows, []string{
			object.Name, template.Name, orNothing(storage), orNothing(template.VolumeAttributesClassName), cmp.Or(replicas, "0"), why,
		})
	}
	return rows
}
