// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package unoffered

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// A message lists at most maxMissing names that no node offers, and maxOffered of the offered classes.
const (
	maxMissing = 3
	maxOffered = 10
)

// offers are the classes that any node offers.
type offers struct {
	listed   time.Time           // when the list of the nodes began; zero before the first one
	names    map[string]struct{} // extended resources
	prefixes map[string]struct{} // with which the names of the classes' extended resources begin
}

func newOffers() offers {
	return offers{
		listed: time.Now(), names: map[string]struct{}{}, prefixes: map[string]struct{}{classes.Domain + "/": {}},
	}
}

// add adds the classes of a node. A draining class does not count as offered. The classes of a node that no longer
// reports count as offered.
func (o *offers) add(node *nodeqosv1alpha1.NodeQOSResources) {
	for _, resource := range node.Status.QOSResources.All() {
		for i := range resource.Classes {
			class := &resource.Classes[i]
			if class.ExtendedResource == "" || class.Draining {
				continue
			}
			o.names[class.ExtendedResource] = struct{}{}
			o.prefixes[strings.TrimSuffix(class.ExtendedResource, class.Name)] = struct{}{}
		}
	}
}

// missing returns those of a pod's names that look like a class, and that no node offers.
func (o *offers) missing(p *pod) (missing []string) {
	for _, name := range p.names {
		if _, offered := o.names[name]; !offered && o.isClass(name) {
			missing = append(missing, name)
		}
	}
	return missing
}

func (o *offers) isClass(name string) bool {
	for prefix := range o.prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// record returns the event of a pod. All its missing classes are in one event, so that one pod costs one write.
func (o *offers) record(p *pod) podevents.Record {
	now := time.Now()
	return podevents.Record{
		Reason: podevents.ClassNotOffered, Warning: true, Message: o.message(p.omitted, o.missing(p)), Count: 1, First: now, Last: now,
	}
}

func (o *offers) message(omitted int, missing []string) string {
	names := slices.Sorted(maps.Keys(o.names))
	for i, name := range missing[:min(len(missing), maxMissing)] {
		missing[i] += classes.Suggestion(name, names)
	}
	message := "no node offers " + printable.List(missing, maxMissing) + ", so the pod waits; "

	if omitted > 0 {
		message += fmt.Sprintf("%d more of its limits were not checked; ", omitted)
	}
	if len(names) == 0 {
		return message + "no node offers any class"
	}
	return message + "nodes offer " + printable.List(names, maxOffered)
}
