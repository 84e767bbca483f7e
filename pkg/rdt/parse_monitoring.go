// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
)

// monitoring reads the field `f`, which selects the monitored containers. The value is the word "containers" (all
// containers), or a mapping from "containers" to "all" or to a list of classes.
func (r *reader) monitoring(f *classes.Field) (m monitoring.Selection) {
	if f == nil {
		return m
	}
	if f.IsScalar() {
		text, ok := f.Text()
		if ok && text != "containers" {
			f.Report(`is %q; write "containers" to monitor all containers, or "containers: [CLASS]" for the containers of some classes`, text)
		}
		return monitoring.Selection{All: true}
	}

	fields := f.Fields("containers", "rotate", "features")
	list := fields["containers"]
	if rotate := fields["rotate"]; rotate != nil {
		m.Rotate = turnOf(rotate)
	}
	if features := fields["features"]; features != nil {
		m.Features = featuresOf(features)
	}
	if list != nil && list.IsScalar() && list.Scalar() == "all" {
		m.All = true
		return m
	}
	items := list.Items()
	if list != nil && len(items) == 0 && (list.IsList() || list.IsNull()) || fields != nil && list == nil && (len(f.Entries()) == 0 || fields["rotate"] != nil) {
		f.Report(`selects no container; write "containers" to monitor all containers, or "containers: [CLASS]" for the containers of some classes`)
	}
	for _, item := range items {
		r.monitoredClass(&m, item)
	}
	return m
}

// featuresOf reads which features are monitored.
func featuresOf(f *classes.Field) []string {
	names := []string{}
	var known []string
	for _, feature := range monitoring.Features() {
		known = append(known, feature.Name)
	}
	items := f.Items()
	for _, item := range items {
		switch name, ok := item.Text(); {
		case ok && !slices.Contains(known, name):
			item.Report("%q is not a feature; write some of %s", name, strings.Join(known, ", "))
		case ok && slices.Contains(names, name):
			item.Report("lists the feature a second time")
		default:
			names = append(names, name)
		}
	}
	if len(items) == 0 && (f.IsList() || f.IsNull()) {
		f.Report("selects no feature; write some of %s", strings.Join(known, ", "))
	}
	return names
}

// turnOf reads how long a container has a counter of memory bandwidth.
func turnOf(f *classes.Field) time.Duration {
	text, ok := f.Text()
	every, err := time.ParseDuration(text)
	if ok && (err != nil || every < time.Second || every > time.Hour) {
		f.Report("is %q; write a time from 1s to 1h, for example 10s", text)
	}
	return every
}

// monitoredClass adds the class that an item names.
func (r *reader) monitoredClass(m *monitoring.Selection, item *classes.Field) {
	name, ok := item.Text()
	if !ok {
		return
	}
	if name == groups.RootClass {
		name = classes.SystemDefault
	}

	_, known := r.classes[name]
	switch {
	case !known && name != classes.SystemDefault:
		item.Report("%q is not a class of this section; write one of its classes, or %s", name, groups.RootClass)
	case slices.Contains(m.Classes, name):
		item.Report("lists the class a second time")
	default:
		m.Classes = append(m.Classes, name)
	}
}
