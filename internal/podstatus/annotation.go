// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"encoding/json"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/objectbudget"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// maxClasses is the maximum size of the annotation, in bytes. The API server allows 256 KiB for all annotations of a pod.
	maxClasses = 8 << 10
	// maxEntries is the maximum number of classes in the annotation. It is higher than the number that fits into
	// `maxClasses` bytes.
	maxEntries = 1 << 10
	// containerSize is added to the size of each class, for the JSON around the class and the names of its container and volume.
	containerSize = 64
)

// podClasses is the value of the annotation classes.EffectiveKey. Its fields have the names that they have in the node API.
type podClasses struct {
	QOSResources []classOf           `json:"qosResources,omitempty"`
	Containers   []*containerClasses `json:"containers,omitempty"`
	// Omitted is the number of classes that do not fit into the annotation.
	Omitted int `json:"omitted,omitempty"`
}

type containerClasses struct {
	Name         string          `json:"name"`
	QOSResources []classOf       `json:"qosResources,omitempty"`
	Volumes      []volumeClasses `json:"volumes,omitempty"`
}

type volumeClasses struct {
	Path         string    `json:"path"`
	QOSResources []classOf `json:"qosResources"`
	Device       string    `json:"device,omitempty"`
}

// classOf is an assignment. Its class is "" for the system default.
type classOf struct {
	Name    string `json:"name"`
	Class   string `json:"class"`
	Source  string `json:"source,omitempty"`
	Foreign string `json:"foreign,omitempty"`
	Stale   string `json:"stale,omitempty"`
	Limited string `json:"limited,omitempty"`
}

// entry is the class of one resource for the pod (`container` is ""), a container, or a volume of a container.
type entry struct {
	container, path, device string
	class                   classOf
}

// annotation returns the value of the annotation classes.EffectiveKey, or "" if the pod needs none. Each container and each class begins
// a line, because "kubectl describe pod" cuts lines of annotations at 140 bytes. If the value would be too long, the first classes take
// precedence.
func (o *observed) annotation() string {
	kept, omitted := objectbudget.Fit(o.entries(), maxClasses, maxEntries, func(e entry) (string, int) {
		return "", objectbudget.Size(e.class) + objectbudget.Size(e.container) + objectbudget.Size(e.path) + containerSize
	})
	if len(kept)+len(omitted) == 0 && o.pod.Annotations[classes.EffectiveKey] == "" {
		return ""
	}

	list := podClasses{Omitted: len(omitted)}
	for _, e := range kept {
		list.add(e)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "" // texts can always be encoded
	}
	return strings.ReplaceAll(string(text), `{"name":`, "\n"+`{"name":`) // names cannot contain this text, because their quotes are escaped
}

// entries lists the class of every resource, in the order of the condition.
func (o *observed) entries() []entry {
	var entries []entry
	add := func(place entry, assignments []*qosv1alpha1.Assignment) {
		for _, a := range assignments {
			place.class = classOf{a.GetName(), a.GetClass(), a.SourceText(), a.GetForeign(), a.GetStale(), a.GetLimited()}
			entries = append(entries, place)
		}
	}

	add(entry{}, o.assignments.GetQosResources())
	for _, c := range o.containers() {
		add(entry{container: c.GetName()}, c.GetQosResources())
		for _, v := range c.GetVolumes() {
			add(entry{container: c.GetName(), path: v.GetPath(), device: v.GetDevice()}, v.GetQosResources())
		}
	}
	return entries
}

// add adds an entry. The entries of a container follow one another.
func (p *podClasses) add(e entry) {
	if e.container == "" {
		p.QOSResources = append(p.QOSResources, e.class)
		return
	}
	if len(p.Containers) == 0 || p.Containers[len(p.Containers)-1].Name != e.container {
		p.Containers = append(p.Containers, &containerClasses{Name: e.container})
	}
	last := p.Containers[len(p.Containers)-1]
	if e.path == "" {
		last.QOSResources = append(last.QOSResources, e.class)
		return
	}
	last.Volumes = append(last.Volumes, volumeClasses{e.path, []classOf{e.class}, e.device})
}
