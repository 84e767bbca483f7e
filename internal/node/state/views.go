// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Status is a snapshot of what the node offers.
type Status struct {
	Resources []ResourceStatus
	Runtime   RuntimeInfo
	Config    ConfigStatus
	Refusals  Refusals
	// Corrections counts drift corrections since the process started.
	Corrections map[Correction]uint64
	// Adopted counts the running containers that request classes, but were created while the plugin was not connected.
	Adopted uint64
}

// ResourceStatus is a resource and the use of its classes.
type ResourceStatus struct {
	classes.Offer
	// Kind is the name of the field of the resource in the class file.
	Kind string
	// InUse maps each class, including draining classes, to the number of its slots in use. The number is 0 for a
	// draining class that only restarted containers can get.
	InUse      map[string]int
	Conditions []classes.Condition
	Degraded   map[string]string
	// Monitored has the classes whose containers are selected for monitoring.
	Monitored map[string]classes.Monitored
	Features  []classes.Feature
	// Values has the values of each class on this machine. It is nil if the backend does not report them.
	Values map[string]map[string]string
	// Held has the condition qos.ConditionHeld of each class. It is empty if the plugin does not compare classes with
	// what is measured.
	Held map[string]classes.Condition
}

// IsFull reports whether all slots of a class are in use.
func (r *ResourceStatus) IsFull(class classes.Class) bool {
	return class.Capacity > 0 && uint64(r.InUse[class.Name]) >= class.Capacity
}

// RuntimeInfo describes the container runtime and the plugin's connection to it.
type RuntimeInfo struct {
	Name, Version, NRIVersion string
	// Plugins lists the NRI plugins that the runtime called for the most recent creation of a container, e.g. "90-balloons".
	// It is nil before the first creation, and if the runtime does not report its plugins.
	Plugins []string
	// NoUpdates is the reason why the plugin does not ask the runtime to update containers, but writes to cgroups itself. It is
	// empty if the runtime updates containers.
	NoUpdates string
	// ReportsPIDs is true if the runtime has ever reported the PID of a container.
	ReportsPIDs bool
	// Synchronized becomes true at the end of Synchronize, and false when the connection is lost.
	Synchronized bool
	// `Since` is the time when Synchronized last became true. It is zero if `Synchronized` was never true.
	Since time.Time
	// SyncFailure is the reason why the runtime ended the last connection before it synchronized the plugin. It is nil if the
	// runtime synchronized the plugin, or if the plugin was not registered.
	SyncFailure error
}

// ConfigStatus is the outcome of the last attempts to load class files.
type ConfigStatus struct {
	// Loaded is the time when the live configuration was applied. It is zero if no configuration was applied. Hash
	// identifies the class files of the live configuration.
	Loaded time.Time
	Hash   string
	Files  []string
	// Generation is the number of configurations that were applied since the process started.
	Generation uint64
	// Err is the error of the last attempt, and Failed is the time of that attempt. Err is nil if the last attempt succeeded.
	Err    error
	Failed time.Time
}

// Status returns what the node offers now.
func (s *View) Status() Status {
	defer s.lock()()
	n := &s.node

	status := Status{
		Runtime: n.runtime, Config: n.live.Config, Refusals: maps.Clone(n.refused.counts), Corrections: n.live.corrections(), Adopted: n.adopted,
	}
	for _, offer := range n.reported() {
		r := n.live.Resources[offer.Name]
		backend := r.Status()
		var values map[string]map[string]string
		if valued, ok := r.Backend.(classes.Valued); ok {
			values = valued.Values()
		}
		status.Resources = append(status.Resources, ResourceStatus{
			Offer: offer, Kind: r.Config.Kind, InUse: n.used(offer.Name), Degraded: backend.Degraded,
			Monitored: backend.Monitored, Features: backend.Features, Values: values,
			Conditions: slices.Concat(backend.Conditions, r.Drift.conditions()), Held: n.held[offer.Name],
		})
	}
	return status
}

// SetHeld replaces the conditions qos.ConditionHeld, by resource and class. The store keeps the maps.
func (s *Store) SetHeld(held map[string]map[string]classes.Condition) {
	defer s.lock()()
	if !maps.EqualFunc(s.node.held, held, maps.Equal[map[string]classes.Condition]) {
		s.node.held, s.node.changed = held, true
	}
}

// reported returns the offers of the configured resources. For each removed resource that is still in use, it adds an
// offer without classes.
func (n *node) reported() []classes.Offer {
	offers := slices.Clone(n.live.Catalog.Offers())
	for _, name := range n.live.Names() {
		if !n.live.Configured(name) && len(n.used(name)) > 0 {
			config := n.live.Resources[name].Config
			offers = append(offers, classes.Offer{Resource: classes.Resource{Name: name, Scope: config.Scope, Mutable: config.Mutable}})
		}
	}
	return offers
}

// PodAssignments lists the assignments of a pod and of its containers.
type PodAssignments struct {
	UID, Namespace, Name string
	// SandboxID is the ID that the runtime gave to the pod's sandbox.
	SandboxID string
	// PodQOS is the Pod QoS class, or "" if the pod has no cgroup of the kubelet.
	PodQOS classes.PodQOS
	// Assignments are the assignments of pod-scope resources.
	Assignments []Reported
	Containers  []ContainerAssignments
}

// Reported is the class of one resource as the node reports it.
type Reported struct {
	classes.Assignment
	// Foreign describes what another program has set in place of the system default, e.g. "resctrl group batch". For a
	// volume with a class, it describes lower limits that another program has set. Foreign is empty if no other program
	// has set anything.
	Foreign string
	// Stale has the properties for which the holder has other values than its class, separated by spaces.
	Stale string
	// Limited is the reason why the class does not have its full effect.
	Limited string
	// Replaced has the values that the kubelet has requested and the class has replaced, e.g. "memory.high 966365184, oomScoreAdj 900".
	Replaced string
}

// ContainerAssignments lists the class of a container for every resource. It includes resources for which the
// container is in the system default class.
type ContainerAssignments struct {
	ID, Name    string
	Assignments []Reported
	// Volumes has the volumes with requested classes, sorted by path.
	Volumes []VolumeAssignments
}

// Assignments returns every running pod with the class of every resource, sorted by namespace and name. If the
// observed class differs from the desired class, Assignments returns the observed class.
func (s *View) Assignments() []PodAssignments {
	unlock := s.lock()
	entries, offers, live := s.node.table.all(), s.node.reported(), s.node.live
	unlock()

	pods := map[string]*PodAssignments{}
	newest := map[string]uint64{} // the number of the newest sandbox of each pod
	volumes := map[string][]VolumeAssignments{}
	for _, e := range entries {
		pod := pods[e.PodUID]
		if pod == nil {
			pod = &PodAssignments{UID: e.PodUID, Namespace: e.PodNamespace, Name: e.PodName, SandboxID: e.SandboxID, PodQOS: e.PodQOS()}
			pods[e.PodUID] = pod
		}

		switch scope := e.Scope(); {
		case scope == classes.VolumeScope:
			volumes[e.container()] = append(volumes[e.container()], live.reportVolume(e, offers))
		case scope == classes.ContainerScope:
			pod.Containers = append(pod.Containers, live.report(e, offers))
		case e.Number > newest[e.PodUID]:
			newest[e.PodUID], pod.SandboxID = e.Number, e.SandboxID
			pod.Assignments = live.report(e, offers).Assignments
		}
	}

	sorted := make([]PodAssignments, 0, len(pods))
	for _, pod := range pods {
		for i := range pod.Containers {
			ctr := &pod.Containers[i]
			ctr.Volumes = volumes[ctr.ID]
			slices.SortFunc(ctr.Volumes, func(a, b VolumeAssignments) int { return strings.Compare(a.Path, b.Path) })
		}
		slices.SortFunc(pod.Containers, func(a, b ContainerAssignments) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
		})
		sorted = append(sorted, *pod)
	}
	slices.SortFunc(sorted, func(a, b PodAssignments) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	return sorted
}

// Container returns the assignments of the container or pod with this owner. If several containers have this owner, it
// returns those of the newest container. `ok` is false if no such container or pod runs.
func (s *View) Container(owner qos.Subject) (ctr ContainerAssignments, ok bool) {
	defer s.lock()()

	e, err := s.node.table.running(owner)
	if err != nil {
		return ContainerAssignments{}, false
	}
	return s.node.live.report(e, s.node.reported()), true
}

// report returns the class of a holder for every resource. It includes resources that were configured after the
// holder was admitted.
func (o Offering) report(h Holding, offers []classes.Offer) ContainerAssignments {
	all := make([]Reported, 0, len(offers))
	for _, a := range h.Assignments {
		if class, differs := h.Observed[a.Resource]; differs {
			a = classes.Assignment{Resource: a.Resource, Class: class, Source: classes.SourceAdopted}
		}
		r := Reported{Assignment: a}
		if a.Class == classes.SystemDefault || h.Volume != "" {
			r.Foreign = h.Foreign[a.Resource]
		}
		if a.Class != classes.SystemDefault {
			r.Stale, r.Limited = h.Stale[a.Resource], cmp.Or(h.NotEnforced[a.Resource], h.Limited[a.Resource])
			r.Replaced = o.replaced(h, a)
		}
		all = append(all, r)
	}

	for _, offer := range offers {
		assigned := slices.ContainsFunc(h.Assignments, func(a classes.Assignment) bool { return a.Resource == offer.Name })
		if offer.Scope == h.Scope() && !assigned {
			all = append(all, Reported{Assignment: classes.Assignment{Resource: offer.Name}})
		}
	}
	return ContainerAssignments{ID: h.ID, Name: h.Container, Assignments: all}
}

// replaced returns the values that a holder had before its class replaced them.
func (o Offering) replaced(h Holding, a classes.Assignment) string {
	r, there := o.Resources[a.Resource]
	if !there || len(h.Spec.Originals) == 0 {
		return ""
	}
	sets, err := r.Adjust(h.Holder, a.Class, a.Class)
	if err != nil {
		return "" // the class was removed
	}

	var replaced []string
	for _, setting := range sets.Settings() {
		if had, known := h.Spec.Originals[setting]; known && had != sets[setting] {
			replaced = append(replaced, strings.TrimSpace(setting.Short()+" "+had))
		}
	}
	return strings.Join(replaced, ", ")
}
