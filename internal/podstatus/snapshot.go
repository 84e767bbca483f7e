// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
)

// snapshot is one state of the plugin, by pod. It is immutable.
type snapshot struct {
	ready    bool
	status   *qosv1alpha1.StatusResponse
	pods     map[string]*qosv1alpha1.PodAssignments // by UID
	refusals map[string][]*qosv1alpha1.Refusal      // by UID of the pod
}

func newSnapshot(state nodecache.State) *snapshot {
	s := &snapshot{
		ready: state.Ready(), status: state.Status,
		pods: map[string]*qosv1alpha1.PodAssignments{}, refusals: map[string][]*qosv1alpha1.Refusal{},
	}
	for _, pod := range state.Assignments.GetPods() {
		s.pods[pod.GetUid()] = pod
	}
	for _, r := range state.Assignments.GetRefusals() {
		s.refusals[r.GetPodUid()] = append(s.refusals[r.GetPodUid()], r)
	}
	return s
}

// observe returns the plugin's state of a pod of the API. The name must match, too: anybody can write the annotation that holds the UID
// of a static pod.
func (s *snapshot) observe(pod *corev1.Pod) observed {
	o, uid := observed{pod: pod}, podrequests.UID(pod)
	if has := s.pods[uid]; has.GetName() == pod.Name && has.GetNamespace() == pod.Namespace {
		o.assignments = has
	}
	for _, r := range s.refusals[uid] {
		if r.GetPod() == pod.Name && r.GetNamespace() == pod.Namespace {
			o.refusals = append(o.refusals, podevents.Record{
				Reason: EventRefused, Warning: true, Container: r.GetContainer(), Series: r.GetReason(), Message: r.GetMessage(),
				Count: max(r.GetCount(), 1), First: r.GetFirstTime().AsTime(), Last: r.GetLastTime().AsTime(),
			})
		}
	}
	return o
}

func recordsOf(refused []podrequests.Refused) []podevents.Record {
	var records []podevents.Record
	for _, r := range refused {
		records = append(records, podevents.Record{
			Reason: EventChangeRefused, Warning: true, Container: r.Container, Series: r.Reason, Message: r.Message,
			Count: r.Count, First: r.First, Last: r.Last,
		})
	}
	return records
}

// differs returns the pods, as namespace/name, whose state differs from before. Another configuration makes all pods differ, as the
// former one may have refused changes.
func (s *snapshot) differs(before *snapshot) []string {
	var keys []string
	all := s.status.GetConfig().GetHash() != before.status.GetConfig().GetHash()
	for uid, pod := range s.pods {
		if all || !proto.Equal(pod, before.pods[uid]) {
			keys = append(keys, pod.GetNamespace()+"/"+pod.GetName())
		}
	}
	for uid, refusals := range s.refusals {
		if !slices.EqualFunc(refusals, before.refusals[uid], func(a, b *qosv1alpha1.Refusal) bool { return proto.Equal(a, b) }) {
			keys = append(keys, refusals[0].GetNamespace()+"/"+refusals[0].GetPod())
		}
	}
	for uid, refusals := range before.refusals {
		if len(s.refusals[uid]) == 0 {
			keys = append(keys, refusals[0].GetNamespace()+"/"+refusals[0].GetPod())
		}
	}
	return keys
}

// maxChanges is how many class changes of one pod are kept for its next reconcile.
const maxChanges = 20

// classChanges are the changes of running containers' classes that were not reconciled yet. They are taken from successive snapshots,
// as a pod is reconciled only some time later. It is safe for concurrent use.
type classChanges struct {
	mu sync.Mutex // guards byPod
	// byPod has the identity by which the node has a pod. The UID alone is not enough: see observe.
	byPod map[podevents.Pod][]podevents.Record
}

func nodePod(pod *qosv1alpha1.PodAssignments) podevents.Pod {
	return podevents.Pod{Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: types.UID(pod.GetUid())}
}

// add takes the changes between two snapshots. before is nil for the first one.
func (c *classChanges) add(before, after *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pod := range c.byPod {
		if after.pods[string(pod.UID)] == nil {
			delete(c.byPod, pod) // the API never had it
		}
	}
	if before == nil {
		return
	}

	for uid, pod := range after.pods {
		if was := before.pods[uid]; was != nil && was != pod {
			c.append(nodePod(pod), changed(was, pod, time.Now()))
		}
	}
}

func (c *classChanges) append(pod podevents.Pod, records []podevents.Record) {
	if all := slices.Concat(c.byPod[pod], records); len(all) > 0 {
		c.byPod[pod] = slices.Clone(all[max(len(all)-maxChanges, 0):])
	}
}

// take returns and removes the changes of a pod.
func (c *classChanges) take(pod *qosv1alpha1.PodAssignments) []podevents.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.byPod[nodePod(pod)]
	delete(c.byPod, nodePod(pod))
	return list
}

// changed returns the containers whose classes differ between two states of a pod. A restarted container is another one.
func changed(before, after *qosv1alpha1.PodAssignments, now time.Time) []podevents.Record {
	var records []podevents.Record
	for _, c := range after.GetContainers() {
		for _, was := range before.GetContainers() {
			parts := differences(was.GetQosResources(), c.GetQosResources())
			if was.GetId() != c.GetId() || len(parts) == 0 {
				continue
			}
			message := c.GetName() + ": " + strings.Join(parts, ", ")
			records = append(records, podevents.Record{
				Reason: EventChanged, Container: c.GetName(), Series: message, Message: message, Count: 1, First: now, Last: now,
			})
		}
	}
	return records
}

// differences compares the classes of one container. A resource that appears or disappears is not a change of its class.
func differences(before, after []*qosv1alpha1.Assignment) []string {
	var parts []string
	for _, now := range after {
		for _, was := range before {
			if was.GetName() == now.GetName() && was.GetClass() != now.GetClass() {
				parts = append(parts, now.GetName()+" "+podrequests.ClassName(was.GetClass())+" -> "+podrequests.ClassName(now.GetClass()))
			}
		}
	}
	return parts
}
