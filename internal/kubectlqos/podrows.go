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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// podRow has the requested class and the class in effect for one resource of a container, volume or pod. Its JSON form
// is an item of the documents that -o json prints.
type podRow struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Container is empty for a resource of pod scope.
	Container string `json:"container"`
	// Volume is the path of a volume in the container. It is empty for the container itself.
	Volume   string `json:"volume,omitempty"`
	Resource string `json:"resource"`
	// Requested is the requested class, which is "" for the system default. It is null if there is no request.
	Requested *string `json:"requested"`
	// RequestedBy is the source of the request: the annotation, the extended resource in the limits, or the claims of the container.
	RequestedBy string `json:"requestedBy,omitempty"`
	// Source is the source of the class: container, allocated, pod, claim (of a volume) or default. For running containers it
	// can also be update, adopted, runtime-handler, or "rule NAME".
	Source string `json:"source"`
	// Effective is the class in effect, which is "" for the system default. It is null if nothing runs or the class is unknown.
	Effective *string `json:"effective"`
	// Foreign is what another program has set in place of the system default, e.g. "resctrl group batch".
	Foreign string `json:"foreign,omitempty"`
	// Reason and Message explain why the class in effect is not the wanted class. Both are empty if the two classes are
	// the same.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Node    string `json:"node"`
	// Device is the device on which the limits of a volume are in force. Since is the time since which they are in
	// force.
	Device string       `json:"device,omitempty"`
	Since  *metav1.Time `json:"since,omitempty"`
	// unknown is true if the class in effect is unknown. Effective is then null.
	unknown bool `json:"-"`
}

// podView is a snapshot of one pod and its node.
type podView struct {
	pod *corev1.Pod
	// node is nil if the pod has no node, or if its node has no NodeQOSResources.
	node    *nodeqosv1alpha1.NodeQOSResources
	offers  []classes.Offer
	catalog *classes.Catalog
	now     time.Time
}

func newPodView(pod *corev1.Pod, node *nodeqosv1alpha1.NodeQOSResources, offers []classes.Offer, now time.Time) *podView {
	catalog := classes.NewCatalog(offers).WithClaims(claimsOf(node))
	if pod.Spec.NodeName == "" {
		catalog = catalog.At("on any node")
	}
	return &podView{pod: pod, node: node, offers: offers, catalog: catalog, now: now}
}

func claimsOf(node *nodeqosv1alpha1.NodeQOSResources) (claims []classes.ClaimedVolume) {
	if node == nil {
		return nil
	}
	for _, v := range node.Spec.Volumes {
		claims = append(claims, classes.ClaimedVolume{Subject: v.Subject(), Claim: v.Claim, Class: v.Class})
	}
	return claims
}

// podRows returns the rows of pods, sorted by namespace and name. If the user has no permission to read nodes, podRows
// makes the rows from the pods alone.
func podRows(pods []corev1.Pod, nodes []nodeqosv1alpha1.NodeQOSResources, readable bool, now time.Time) []podRow {
	byName := make(map[string]*nodeqosv1alpha1.NodeQOSResources, len(nodes))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})

	anywhere := anyOf(nodes)
	var rows []podRow
	for i := range pods {
		pod, offers := &pods[i], anywhere
		node := byName[pod.Spec.NodeName]
		switch {
		case node != nil:
			offers = offersOf(node)
		case !readable || pod.Spec.NodeName != "":
			offers = assumed(pod)
		}
		rows = append(rows, newPodView(pod, node, offers, now).rows()...)
	}
	return rows
}

// assumed returns offers for a pod if the offers of its node are unknown. The returned offers include every class
// that the pod requests, so that the requests can be resolved.
func assumed(pod *corev1.Pod) []classes.Offer {
	asked := map[string][]classes.Class{}
	add := func(resource, class string) {
		asked[resource] = union(asked[resource], []classes.Class{{Name: class}})
	}
	for key, value := range pod.Annotations {
		switch {
		case !classes.IsPodRequest(key):
		case key == classes.PodKey || strings.HasPrefix(key, classes.ContainerKeyPrefix):
			pairs, _ := classes.ParsePairs(value) // resolving the request reports the errors
			for _, pair := range pairs {
				add(pair.Resource, pair.Class)
			}
		default:
			short, _, _ := strings.Cut(key, ".") // e.g. "rdt" of "rdt.resources.kubernetes.io/…"
			add(classes.CanonicalResource(short), value)
		}
	}
	for _, c := range containersOf(pod) {
		for name := range podspec.LimitsOf(pod, c.Container) {
			if resource, class, ok := classBehind(nil, string(name)); ok {
				add(resource, class)
			}
		}
	}

	var offers []classes.Offer
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		offers = append(offers, classes.Offer{Resource: classes.Resource{Name: name, Scope: classes.ContainerScope, Classes: asked[name]}})
	}
	return append(offers, classes.Offer{Resource: classes.Resource{Scope: classes.VolumeScope, Classes: volumeClasses(pod)}})
}

// volumeClasses returns the classes that a pod requests for volumes. Such a request names only a class, and no
// resource.
func volumeClasses(pod *corev1.Pod) (all []classes.Class) {
	for _, c := range containersOf(pod) {
		volumes, _ := classes.Volumes(requestOf(nil, pod, c))
		for _, volume := range volumes {
			all = union(all, []classes.Class{{Name: classes.VolumeClass(volume)}})
		}
	}
	return all
}

// containerView is a container that may have classes. Its Subject can also be the pod as a whole, or a volume of the
// container.
type containerView struct {
	qos.Subject
	// status is nil if the container has no status yet.
	status *corev1.ContainerStatus
}

func viewOf(pod *corev1.Pod, name string, status *corev1.ContainerStatus) containerView {
	return containerView{Subject: qos.Subject{PodUID: podspec.UID(pod), Container: name}, status: status}
}

func (c containerView) scope() classes.Scope {
	return classes.Holder{Container: c.Container, Volume: c.Volume}.Scope()
}

// containersOf returns the containers of a pod in order. It leaves out completed init containers, and ephemeral
// containers that do not run.
func containersOf(pod *corev1.Pod) []containerView {
	var all []containerView
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		status := statusOf(pod.Status.InitContainerStatuses, c.Name)
		done := status != nil && status.State.Terminated != nil && status.State.Terminated.ExitCode == 0
		if sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways; sidecar || !done {
			all = append(all, viewOf(pod, c.Name, status))
		}
	}

	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		all = append(all, viewOf(pod, name, statusOf(pod.Status.ContainerStatuses, name)))
	}
	for i := range pod.Spec.EphemeralContainers {
		name := pod.Spec.EphemeralContainers[i].Name
		if status := statusOf(pod.Status.EphemeralContainerStatuses, name); status != nil && status.State.Terminated == nil {
			all = append(all, viewOf(pod, name, status))
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

// rows returns the rows of the pod as a whole, then the rows of its containers and their volumes, and then a row for
// each annotation that is ignored.
func (v *podView) rows() []podRow {
	var rows []podRow
	if slices.ContainsFunc(v.offers, func(o classes.Offer) bool { return o.Scope == classes.PodScope }) {
		rows = v.rowsOf(viewOf(v.pod, "", nil))
	}
	for _, c := range containersOf(v.pod) {
		rows = append(append(rows, v.rowsOf(c)...), v.volumeRows(c)...)
	}
	for _, ignored := range classes.Ignored(v.pod.Annotations, podspec.Containers(v.pod)) {
		rows = append(rows, podRow{
			Namespace: v.pod.Namespace, Pod: v.pod.Name, Container: ignored.Container, Node: v.pod.Spec.NodeName,
			RequestedBy: ignored.Key, Reason: nodeqosv1alpha1.ReasonAnnotationIgnored, Message: ignored.Problem,
		})
	}
	return rows
}

// volumeRows returns the rows of a container's volumes. A volume has a row if the pod or a claim requests a class for it.
func (v *podView) volumeRows(c containerView) (rows []podRow) {
	volumes, err := v.catalog.Volumes(requestOf(v.offers, v.pod, c))
	var refused *classes.RequestError
	if errors.As(err, &refused) {
		row := v.refusedRow(c, refused.Resource, refused)
		row.RequestedBy = keyText(refused.Key)
		return []podRow{row}
	}

	for _, volume := range volumes {
		c.Volume = volume.Volume
		rows = append(rows, v.rowsOf(c)...)
	}
	return rows
}

// rowsOf returns a row for each resource that has the scope of `c`: container, volume or pod. If the pod's node is
// unknown, rowsOf returns rows only for the resources that the pod requests.
func (v *podView) rowsOf(c containerView) []podRow {
	wanted, err := v.catalog.Resolve(requestOf(v.offers, v.pod, c))
	var refused *classes.RequestError
	errors.As(err, &refused)
	want := map[string]*classes.Assignment{}
	for i := range wanted {
		want[wanted[i].Resource] = &wanted[i]
	}

	var rows []podRow
	refusalShown := refused == nil
	for i := range v.offers {
		name := v.offers[i].Name
		concerned := refused != nil && (refused.Resource == "" || refused.Resource == name)
		switch {
		case v.offers[i].Scope != c.scope():
		case concerned:
			rows, refusalShown = append(rows, v.refusedRow(c, name, refused)), true
		case v.node != nil && c.Volume == "" || asks(want[name]):
			rows = append(rows, v.row(c, name, want[name]))
		}
	}
	// If a container requests a resource that the node lacks, the container gets a row for this resource.
	if !refusalShown && c.Container != "" {
		rows = append(rows, v.refusedRow(c, refused.Resource, refused))
	}
	return rows
}

// row returns the row of a resource. `want` is the assignment that the node would make. It is nil if the node would
// refuse the container because of another resource.
func (v *podView) row(c containerView, resource string, want *classes.Assignment) podRow {
	known := want != nil
	if !known {
		want = &classes.Assignment{}
	}
	row, has, is := v.effectiveRow(c, resource, *want)
	switch {
	case asks(want):
	case has.isDecidedByNode():
		want = &classes.Assignment{Resource: resource, Class: has.class, Source: has.source}
	case has.source == classes.SourceAllocated && claimsOfContainer(v.pod, c.Container) != "": // nothing in the pod says which class
		want = &classes.Assignment{Resource: resource, Class: has.class, Source: has.source, Key: claimsOfContainer(v.pod, c.Container)}
		row.Source = string(has.source)
	}
	if asks(want) {
		row.Requested, row.RequestedBy = &want.Class, keyText(want.Key)
	}
	row.Reason, row.Message = v.why(c, *want, has, is, is == inClass && known && has.class == want.Class)
	return row
}

// claimsOfContainer returns a text with the names of the claims that a container uses, or "" if there are none.
func claimsOfContainer(pod *corev1.Pod, container string) string {
	var names []string
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, claim := range c.Resources.Claims {
			if c.Name == container {
				names = append(names, claim.Name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "claim " + strings.Join(names, ", ")
}

// refusedRow returns a resource's row for a container whose request the node would refuse.
func (v *podView) refusedRow(c containerView, resource string, refused *classes.RequestError) podRow {
	row, _, _ := v.effectiveRow(c, resource, classes.Assignment{})
	if refused.Resource != "" {
		row.Requested, row.RequestedBy = &refused.Class, keyText(refused.Key)
	}
	row.Reason, row.Message = classes.RefusalReason(refused), refused.Problem
	if podspec.Finished(v.pod) || v.pod.DeletionTimestamp != nil { // the node may have changed since
		row.Reason, row.Message = v.ending(refused.Key)
	}
	return row
}

// effectiveRow returns a row with the class in effect. The caller adds the request, the reason and the message.
func (v *podView) effectiveRow(c containerView, resource string, want classes.Assignment) (row podRow, has assignment, is state) {
	has, is = v.effective(c, resource, want.Class)
	row = podRow{
		Namespace: v.pod.Namespace, Pod: v.pod.Name, Container: c.Container, Volume: c.Volume, Resource: resource, Node: v.pod.Spec.NodeName,
		Source: string(want.Source), unknown: is == notKnown,
	}
	if is == inClass {
		row.Effective, row.Foreign, row.Device, row.Since = &has.class, has.foreign, has.device, has.since
	}
	if has.source == classes.SourceUpdate || has.source == classes.SourceAdopted || has.isDecidedByNode() {
		row.Source = string(has.source)
	}
	return row, has, is
}

// keyText returns the source of a request: the key of an annotation, or the name of the extended resource for which the
// kubelet added the annotation.
func keyText(key string) string { return strings.TrimPrefix(key, classes.AllocatedKeyPrefix) }
