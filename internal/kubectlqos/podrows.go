// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// podRow tells of one resource which class a container, or a pod, asks for and has. It is also the form of documents (-o json, yaml).
type podRow struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Container is empty when the resource is of the pod as a whole.
	Container string `json:"container"`
	Resource  string `json:"resource"`
	// Requested is the class that is asked for, "" the system default; null when nothing is.
	Requested *string `json:"requested"`
	// RequestedBy is the annotation, or the extended resource in limits, that asks.
	RequestedBy string `json:"requestedBy,omitempty"`
	// Source says where the class comes from: container, allocated, pod, default, or of what runs update and adopted.
	Source string `json:"source"`
	// Effective is the class in effect, "" the system default; null while it does not run, or when it is not known.
	Effective *string `json:"effective"`
	// Reason and Message say why the class in effect is another, or none; both are empty when all is as it was asked for.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Node    string `json:"node"`
	// unknown says that something runs, but not in which class.
	unknown bool `json:"-"`
}

// podView is what is known of one pod at one moment.
type podView struct {
	pod *corev1.Pod
	// node is what the pod's node tells; nil when it tells nothing, or the pod has no node.
	node    *nodeqosv1alpha1.NodeQOSResources
	offers  []classes.Offer
	catalog *classes.Catalog
	now     time.Time
}

// podRows tells of pods, by namespace and name. Without nodes, as when nobody may read them, it is what pods themselves tell.
func podRows(pods []corev1.Pod, nodes []nodeqosv1alpha1.NodeQOSResources, readable bool, now time.Time) []podRow {
	byName := make(map[string]*nodeqosv1alpha1.NodeQOSResources, len(nodes))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	anywhere := anyOf(nodes)
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	var rows []podRow
	for i := range pods {
		pod := &pods[i]
		v := &podView{pod: pod, node: byName[pod.Spec.NodeName], now: now}
		switch {
		case v.node != nil:
			v.offers = offersOf(v.node)
		case readable && pod.Spec.NodeName == "":
			v.offers = anywhere
		default:
			v.offers = assumed(pod)
		}
		v.catalog = classes.NewCatalog(v.offers)
		rows = append(rows, v.rows()...)
	}
	return rows
}

// assumed is what a pod would need to get what it asks for: of a node that tells nothing, that is all there is to look at.
func assumed(pod *corev1.Pod) []classes.Offer {
	asked := map[string]*classes.Offer{}
	add := func(resource, class string) {
		offer := asked[resource]
		if offer == nil {
			offer = &classes.Offer{Resource: classes.Resource{Name: resource, Scope: classes.ContainerScope}}
			asked[resource] = offer
		}
		offer.Classes = union(offer.Classes, []classes.Class{{Name: class}})
	}
	for key, value := range pod.Annotations {
		if !classes.IsPodRequest(key) {
			continue
		}
		if key != classes.PodKey && !strings.HasPrefix(key, classes.ContainerKeyPrefix) {
			short, _, _ := strings.Cut(key, ".") // of "rdt.resources.kubernetes.io/…"
			add(classes.CanonicalResource(short), value)
			continue
		}
		pairs, _ := classes.ParsePairs(value) // what is wrong is found when it is resolved
		for _, pair := range pairs {
			add(pair.Resource, pair.Class)
		}
	}
	for _, c := range containersOf(pod) {
		for name := range podspec.LimitsOf(pod, c.name) {
			if resource, class, ok := classBehind(nil, string(name)); ok {
				add(resource, class)
			}
		}
	}
	var offers []classes.Offer
	for _, resource := range slices.Sorted(maps.Keys(asked)) {
		offers = append(offers, *asked[resource])
	}
	return offers
}

// containerView is a container of a pod that may have classes; the pod as a whole with no name.
type containerView struct {
	name string
	// status is nil when there is none yet.
	status *corev1.ContainerStatus
}

// containersOf are the containers of a pod in the order of the pod, without those that have done their work before the others began.
func containersOf(pod *corev1.Pod) []containerView {
	var all []containerView
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		status := statusOf(pod.Status.InitContainerStatuses, c.Name)
		done := status != nil && status.State.Terminated != nil && status.State.Terminated.ExitCode == 0
		if sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways; sidecar || !done {
			all = append(all, containerView{c.Name, status})
		}
	}
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		all = append(all, containerView{name, statusOf(pod.Status.ContainerStatuses, name)})
	}
	for i := range pod.Spec.EphemeralContainers {
		name := pod.Spec.EphemeralContainers[i].Name
		if status := statusOf(pod.Status.EphemeralContainerStatuses, name); status != nil && status.State.Terminated == nil {
			all = append(all, containerView{name, status})
		}
	}
	return all
}

func statusOf(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// rows tells of the pod as a whole, and then of its containers.
func (v *podView) rows() []podRow {
	var rows []podRow
	if slices.ContainsFunc(v.offers, func(o classes.Offer) bool { return o.Scope == classes.PodScope }) {
		rows = v.rowsOf(containerView{}, classes.PodScope)
	}
	for _, c := range containersOf(v.pod) {
		rows = append(rows, v.rowsOf(c, classes.ContainerScope)...)
	}
	return rows
}

// rowsOf has a row for each resource of a scope. Where nothing runs, and nothing is known of the node, only what is asked for counts.
func (v *podView) rowsOf(c containerView, scope classes.Scope) []podRow {
	wanted, err := v.catalog.Resolve(requestOf(v.offers, v.pod, c.name))
	var refused *classes.RequestError
	errors.As(err, &refused)
	want := map[string]classes.Assignment{}
	for _, a := range wanted {
		want[a.Resource] = a
	}
	var rows []podRow
	told := false // of what was refused
	for i := range v.offers {
		offer := &v.offers[i]
		if (offer.Scope == classes.PodScope) != (scope == classes.PodScope) {
			continue
		}
		asked, known := want[offer.Name]
		blamed := refused != nil && (refused.Resource == "" || refused.Resource == offer.Name)
		if v.node == nil && !blamed && !asks(asked) {
			continue
		}
		row := v.row(c, offer.Name, asked, known, refused, blamed)
		told = told || blamed
		rows = append(rows, row)
	}
	// What is asked for and is of no node is told of the container that would have it.
	if refused != nil && !told && c.name != "" {
		rows = append(rows, v.row(c, refused.Resource, classes.Assignment{}, false, refused, true))
	}
	return rows
}

func (v *podView) row(
	c containerView, resource string, want classes.Assignment, known bool, refused *classes.RequestError, blamed bool,
) podRow {
	row := podRow{
		Namespace: v.pod.Namespace, Pod: v.pod.Name, Container: c.name, Resource: resource, Node: v.pod.Spec.NodeName, Source: string(want.Source),
	}
	if blamed && refused.Resource != "" {
		row.Requested, row.RequestedBy = &refused.Class, keyText(refused.Key)
	}
	if known && asks(want) {
		row.Requested, row.RequestedBy = &want.Class, keyText(want.Key)
	}
	has, state := v.effective(c, resource, want.Class)
	if state == inClass {
		row.Effective = &has.class
	}
	row.unknown = state == notKnown
	if has.source == classes.SourceUpdate || has.source == classes.SourceAdopted {
		row.Source = string(has.source)
	}
	if blamed {
		row.Reason, row.Message = refusal(refused, v.pod.Spec.NodeName == "")
		return row
	}
	satisfied := state == inClass && known && has.class == want.Class
	row.Reason, row.Message = v.why(c, want, has, state, satisfied)
	return row
}

// keyText names what asked: of an allocation the extended resource, of which the kubelet's annotation is made.
func keyText(key string) string { return strings.TrimPrefix(key, classes.AllocatedKeyPrefix) }
