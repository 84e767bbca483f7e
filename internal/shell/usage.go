// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"strings"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
)

// UsageView selects what a usage table shows.
type UsageView struct {
	// Containers adds a table of containers and pods.
	Containers bool
	// SortBy is one of tables.Orders, or empty for the order of the names.
	SortBy string
}

// Usage formats the resource usage in the time between two messages of WatchUsage.
func Usage(before, now *qosv1alpha1.WatchUsageResponse, view UsageView) string {
	var text strings.Builder
	took := now.GetTime().AsTime().Sub(before.GetTime().AsTime())
	for _, cells := range tables.Usage(items(before, 0, view), items(now, took, view), view.SortBy) {
		table(cells).appendTo(&text)
	}
	if text.Len() == 0 {
		return "Nothing is measured on this node: no resource is available, or the machine cannot measure usage.\n"
	}
	return text.String()
}

func items(message *qosv1alpha1.WatchUsageResponse, took time.Duration, view UsageView) (all []tables.Item) {
	for _, c := range message.GetClasses() {
		all = append(all, tables.Item{
			Key: c.GetResource() + "=" + c.GetClass(), Resource: c.GetResource(), Took: took, Measurements: measurements(c.GetMeasurements()),
			Header: []string{"RESOURCE", "CLASS"}, Names: []string{c.GetResource(), classText(c.GetClass())},
		})
	}
	for _, c := range message.GetContainers() {
		if view.Containers {
			all = append(all, tables.Item{
				Key: c.GetResource() + " " + c.GetId(), Resource: c.GetResource(), Took: took, Measurements: measurements(c.GetMeasurements()),
				Header: []string{"RESOURCE", "NAMESPACE", "POD", "CONTAINER", "CLASS"},
				Names:  []string{c.GetResource(), c.GetNamespace(), c.GetPod(), containerText(c.GetContainer()), classText(c.GetClass())},
			})
		}
	}
	return all
}

func measurements(messages []*qosv1alpha1.Measurement) (all []tables.Measurement) {
	for _, m := range messages {
		all = append(all, tables.Measurement{Name: m.GetName(), Part: m.GetPart(), Value: m.GetValue()})
	}
	return all
}
