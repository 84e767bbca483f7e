// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"maps"
	"slices"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/usagetable"
)

// UsageView selects what a usage table shows.
type UsageView struct {
	// Containers adds a table of containers and pods.
	Containers bool
	// SortBy is one of usagetable.Orders, or empty for the order of the names.
	SortBy string
}

// Usage formats the resource usage in the time between two messages of WatchUsage.
func Usage(before, now *qosv1alpha1.WatchUsageResponse, view UsageView) string {
	took := now.GetTime().AsTime().Sub(before.GetTime().AsTime())
	byResource := map[string]*usageTable{}
	tableOf := func(resource string, names ...string) *usageTable {
		if byResource[resource] == nil {
			byResource[resource] = &usageTable{names: names}
		}
		return byResource[resource]
	}

	earlier := measurementsByID(before)
	for _, c := range now.GetClasses() {
		tableOf("1 "+c.GetResource(), "RESOURCE", "CLASS").
			Add(earlier[idOfClass(c)], measurements(c.GetMeasurements()), took, c.GetResource(), classText(c.GetClass()))
	}
	for _, c := range now.GetContainers() {
		if view.Containers {
			tableOf("2 "+c.GetResource(), "RESOURCE", "NAMESPACE", "POD", "CONTAINER", "CLASS").
				Add(earlier[idOfContainer(c)], measurements(c.GetMeasurements()), took,
					c.GetResource(), c.GetNamespace(), c.GetPod(), containerText(c.GetContainer()), classText(c.GetClass()))
		}
	}

	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byResource)) {
		t := byResource[name]
		table(t.Cells(view.SortBy, t.names...)).appendTo(&text)
	}
	if text.Len() == 0 {
		return "Nothing is measured on this node: no resource is available, or the machine cannot measure usage.\n"
	}
	return text.String()
}

type usageTable struct {
	usagetable.Table
	names []string
}

func idOfClass(c *qosv1alpha1.ClassUsage) string { return c.GetResource() + "=" + c.GetClass() }

func idOfContainer(c *qosv1alpha1.ContainerUsage) string { return c.GetResource() + " " + c.GetId() }

func measurementsByID(message *qosv1alpha1.WatchUsageResponse) map[string][]usagetable.Measurement {
	all := map[string][]usagetable.Measurement{}
	for _, c := range message.GetClasses() {
		all[idOfClass(c)] = measurements(c.GetMeasurements())
	}
	for _, c := range message.GetContainers() {
		all[idOfContainer(c)] = measurements(c.GetMeasurements())
	}
	return all
}

func measurements(messages []*qosv1alpha1.Measurement) (all []usagetable.Measurement) {
	for _, m := range messages {
		all = append(all, usagetable.Measurement{Name: m.GetName(), Part: m.GetPart(), Value: m.GetValue()})
	}
	return all
}
