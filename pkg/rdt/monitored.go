// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// monitored selects containers by their classes, which may include the system default.
type monitored struct {
	all     bool
	classes []string
}

func (m monitored) enabled() bool { return m.all || len(m.classes) > 0 }

func (m monitored) has(class string) bool { return m.all || slices.Contains(m.classes, class) }

// monitoredClasses returns the selected classes that are configured, and the system default if it is selected.
func (c *Config) monitoredClasses() []string {
	if !c.monitored.all {
		return c.monitored.classes
	}
	return append(c.ClassNames(), classes.SystemDefault)
}

// monitoring reads the field f, which selects the monitored containers. The value is the word "containers" (all
// containers), or a mapping from "containers" to a list of classes.
func (r *reader) monitoring(f *classes.Field) (m monitored) {
	if f == nil {
		return m
	}
	if f.IsScalar() {
		text, ok := f.Text()
		if ok && text != "containers" {
			f.Report(`is %q; write "containers" to monitor all containers, or "containers: [CLASS]" for the containers of some classes`, text)
		}
		return monitored{all: true}
	}

	fields := f.Fields("containers")
	list := fields["containers"]
	items := list.Items()
	if list != nil && len(items) == 0 && (list.IsList() || list.IsNull()) || fields != nil && len(f.Entries()) == 0 {
		f.Report(`selects no container; write "containers" to monitor all containers, or "containers: [CLASS]" for the containers of some classes`)
	}
	for _, item := range items {
		m.add(r, item)
	}
	return m
}

func (m *monitored) add(r *reader, item *classes.Field) {
	name, ok := item.Text()
	if !ok {
		return
	}
	if name == rootClass {
		name = classes.SystemDefault
	}

	_, known := r.classes[name]
	switch {
	case !known && name != classes.SystemDefault:
		item.Report("%q is not a class of this section; write one of its classes, or %s", name, rootClass)
	case slices.Contains(m.classes, name):
		item.Report("lists the class a second time")
	default:
		m.classes = append(m.classes, name)
	}
}
