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
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
)

// snapshot is the state of the plugin at one moment. It is immutable.
type snapshot struct {
	ready  bool
	status *qosv1alpha1.StatusResponse
	// pods has the plugin's pods. The key has the pod's UID on the node, its namespace and its name. The UID alone is
	// not safe, because a user can write the UID of another pod into the annotation of a mirror pod.
	pods map[podevents.Pod]view
}

type view struct {
	assignments *qosv1alpha1.PodAssignments
	refusals    []*qosv1alpha1.Refusal
}

func (v view) equal(other view) bool {
	return proto.Equal(v.assignments, other.assignments) &&
		slices.EqualFunc(v.refusals, other.refusals, func(a, b *qosv1alpha1.Refusal) bool { return proto.Equal(a, b) })
}

func newSnapshot(state nodecache.State) *snapshot {
	s := &snapshot{ready: state.Ready(), status: state.Status, pods: map[podevents.Pod]view{}}
	for _, pod := range state.Assignments.GetPods() {
		s.pods[keyOf(pod)] = view{assignments: pod}
	}
	for _, r := range state.Assignments.GetRefusals() {
		key := podevents.Pod{Namespace: r.GetNamespace(), Name: r.GetPod(), UID: types.UID(r.GetPodUid())}
		v := s.pods[key]
		v.refusals = append(v.refusals, r)
		s.pods[key] = v
	}
	return s
}

func keyOf(pod *qosv1alpha1.PodAssignments) podevents.Pod {
	return podevents.Pod{Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: types.UID(pod.GetUid())}
}

func (s *snapshot) observe(pod *corev1.Pod) observed {
	v := s.pods[podevents.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(podspec.UID(pod))}]
	o := observed{pod: pod, assignments: v.assignments}
	for _, r := range v.refusals {
		o.refusals = append(o.refusals, podevents.Record{
			Reason: podevents.ClassRefused, Warning: true, Container: r.GetContainer(), Series: r.GetReason(), Message: r.GetMessage(),
			Count: max(r.GetCount(), 1), First: r.GetFirstTime().AsTime(), Last: r.GetLastTime().AsTime(),
		})
	}
	return o
}

// differs returns the pods whose state differs from their state in the earlier snapshot. Each pod is a namespace/name.
// If the configuration has changed, it returns all pods, because the new configuration may accept changes that the
// former configuration refused.
func (s *snapshot) differs(before *snapshot) []string {
	var keys []string
	all := s.status.GetConfig().GetHash() != before.status.GetConfig().GetHash()
	for _, pods := range []map[podevents.Pod]view{s.pods, before.pods} {
		for key := range pods {
			if all || !s.pods[key].equal(before.pods[key]) {
				keys = append(keys, key.Namespace+"/"+key.Name)
			}
		}
	}
	return keys
}

// maxChanges is the maximum number of class changes that are kept for the next reconcile of one pod.
const maxChanges = 20

// classChanges keeps the class changes of running containers until their pod is reconciled. It compares successive
// snapshots, because a reconcile sees only the latest snapshot. classChanges is safe for concurrent use.
type classChanges struct {
	mu    sync.Mutex // guards byPod
	byPod map[podevents.Pod][]podevents.Record
}

// add adds the changes between two snapshots. `before` is nil if `after` is the first snapshot.
func (c *classChanges) add(before, after *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.byPod {
		if after.pods[key].assignments == nil {
			delete(c.byPod, key) // the plugin no longer has the pod
		}
	}
	if before == nil {
		return
	}

	for key, v := range after.pods {
		was := before.pods[key].assignments
		if was == v.assignments {
			continue
		}
		if all := slices.Concat(c.byPod[key], changed(was, v.assignments, time.Now())); len(all) > 0 {
			c.byPod[key] = slices.Clone(all[max(len(all)-maxChanges, 0):])
		}
	}
}

func (c *classChanges) take(key podevents.Pod) []podevents.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.byPod[key]
	delete(c.byPod, key)
	return list
}

// changed returns a record for each container whose classes differ between two states of a pod. It does not compare a
// restarted container with its predecessor.
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
				Reason: podevents.ClassChanged, Container: c.GetName(), Series: message, Message: message, Count: 1, First: now, Last: now,
			})
		}
	}
	return records
}

func differences(before, after []*qosv1alpha1.Assignment) []string {
	var parts []string
	for _, now := range after {
		for _, was := range before {
			if was.GetName() == now.GetName() && was.GetClass() != now.GetClass() && !isInitialDefault(was, now) && !isInitialDefault(now, was) {
				parts = append(parts, now.GetName()+" "+podspec.ClassName(was.GetClass())+" -> "+podspec.ClassName(now.GetClass()))
			}
		}
	}
	return parts
}

// isInitialDefault reports whether the change is the first assignment of a default class to a container that was
// created while the plugin was not running. The plugin's own container is always one of these containers. After a new
// registration, the plugin reports them for a moment as it found them, without the default class.
func isInitialDefault(was, now *qosv1alpha1.Assignment) bool {
	return was.GetSource() == qosv1alpha1.Source_SOURCE_ADOPTED && was.GetClass() == "" && now.IsDefault()
}
