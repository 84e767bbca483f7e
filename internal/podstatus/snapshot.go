// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
)

// snapshot is what the plugin told, by pod. It is not changed.
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

// observe returns what the plugin knows of a pod of the API. The name must be that of the pod, too: the annotation by which a
// static pod is recognized could be written by others.
func (s *snapshot) observe(pod *corev1.Pod) observed {
	o, uid := observed{pod: pod}, podrequests.UID(pod)
	if has := s.pods[uid]; has.GetName() == pod.Name && has.GetNamespace() == pod.Namespace {
		o.assignments = has
	}
	for _, r := range s.refusals[uid] {
		if r.GetPod() == pod.Name && r.GetNamespace() == pod.Namespace {
			o.refusals = append(o.refusals, r)
		}
	}
	return o
}

// differs names the pods, as namespace/name, of which s tells something else than before. Everything told anew, as by a
// configuration that came into force, is something else of every pod, as some may have been refused by the old one.
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

// unchanged says whether two versions of a pod are the same to us.
func unchanged(before, after any) bool {
	a, ok := before.(*corev1.Pod)
	b, also := after.(*corev1.Pod)
	if !ok || !also {
		return false
	}
	x, y := *a, *b
	x.ResourceVersion, y.ResourceVersion = "", ""
	return reflect.DeepEqual(&x, &y)
}

// apiWatchEnded says whether a watch ended as watches do.
func apiWatchEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// changes are those of classes of running containers, by pod, until they are told. They are taken from one state of the plugin to
// the next, since a pod is looked at only some time later.
type changes struct {
	mu    sync.Mutex // guards byPod
	byPod map[podKey][]occurrence
}

// podKey is a pod as the node knows it. The UID alone could be claimed by another pod: that of a static pod is an annotation.
type podKey struct{ uid, namespace, name string }

func keyOf(pod *qosv1alpha1.PodAssignments) podKey {
	return podKey{pod.GetUid(), pod.GetNamespace(), pod.GetName()}
}

// note takes what has changed from one state to the next; before is nil in the beginning.
func (c *changes) note(before, after *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.byPod {
		if after.pods[key.uid] == nil {
			delete(c.byPod, key) // nobody has asked for them, and nobody will
		}
	}
	if before == nil {
		return
	}
	for uid, pod := range after.pods {
		if was := before.pods[uid]; was != nil && was != pod {
			c.add(keyOf(pod), changed(was, pod, time.Now()))
		}
	}
}

// add keeps the newest, as the pod may be one that the API does not know.
func (c *changes) add(key podKey, list []occurrence) {
	if len(list) == 0 {
		return
	}
	all := slices.Concat(c.byPod[key], list)
	c.byPod[key] = slices.Clone(all[max(len(all)-mostChanges, 0):])
}

// mostChanges are kept of one pod until they are told.
const mostChanges = 20

// take returns the changes of a pod that were not told yet.
func (c *changes) take(pod *qosv1alpha1.PodAssignments) []occurrence {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.byPod[keyOf(pod)]
	delete(c.byPod, keyOf(pod))
	return list
}
