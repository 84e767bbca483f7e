// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package unoffered

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
)

// These limit the memory of a queue to a few MiB, whatever the limits of the pods are.
const (
	maxPods        = 1000
	maxOfNamespace = 50
	maxJudged      = 10_000
	// maxNames is the maximum number of names that are kept for a pod. maxName is the length of the longest qualified
	// name.
	maxNames = 8
	maxName  = 253 + len("/") + 63
)

// pod is a waiting pod.
type pod struct {
	podevents.Pod
	// `names` has extended resources in the pod's limits that may be classes, at most maxNames of them. `omitted` is the
	// number of further ones.
	names   []string
	omitted int
	queued  time.Time
}

// queue has the pods that wait for a comparison with the offered classes, or for their event. It is safe for concurrent use. The zero
// value is empty.
type queue struct {
	mu   sync.Mutex // guards all below
	pods []pod
	// judged are pods that need no event or have one. The API server lets nobody change the extended resources of a pod.
	judged map[types.UID]struct{}
	// `turns` has the namespaces in which an event was written, and `writes` is the number of these writes.
	turns  map[string]turn
	writes int
}

// turn describes the last write in a namespace.
type turn struct {
	number int // the value of queue.writes after this write
	retry  kubeapi.Retry
}

// set adds a pod that waits, or removes a pod that waits no longer.
func (q *queue) set(p *corev1.Pod, exists bool) {
	names, omitted := namesOf(p)
	q.mu.Lock()
	defer q.mu.Unlock()

	if !exists {
		delete(q.judged, p.UID)
	}
	if !exists || len(names) == 0 {
		q.pods = slices.DeleteFunc(q.pods, func(known pod) bool { return known.UID == p.UID })
		return
	}

	_, judged := q.judged[p.UID]
	if judged || slices.ContainsFunc(q.pods, func(known pod) bool { return known.UID == p.UID }) || !q.makeRoom(p.Namespace) {
		return
	}
	q.pods = append(q.pods, pod{
		Pod:   podevents.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		names: names, omitted: omitted, queued: time.Now(),
	})
}

// makeRoom reports whether a pod of a namespace may be added. If the queue is full, it removes a pod of the namespace
// that has the most pods.
func (q *queue) makeRoom(namespace string) bool {
	count, most := map[string]int{}, -1
	for i := range q.pods {
		if of := q.pods[i].Namespace; most < 0 || count[of]+1 > count[q.pods[most].Namespace] {
			most = i
		}
		count[q.pods[i].Namespace]++
	}

	if len(q.pods) >= maxPods {
		if count[namespace]+1 >= count[q.pods[most].Namespace] {
			return false
		}
		q.pods = slices.Delete(q.pods, most, most+1)
	}
	return count[namespace] < maxOfNamespace
}

// judge removes the pods that need no event. It returns whether the offers are older than a pod that needs an event.
func (q *queue) judge(o *offers) (outdated bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pods = slices.DeleteFunc(q.pods, func(p pod) bool {
		if len(o.missing(&p)) == 0 {
			q.remember(p.UID)
			return true
		}
		outdated = outdated || !p.queued.Before(o.listed)
		return false
	})
	return outdated
}

// next returns a pod that was queued before a time. The pod is in the namespace whose last write was longest ago.
func (q *queue) next(before time.Time) (next pod, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.pods {
		turn := q.turns[p.Namespace]
		if p.queued.Before(before) && turn.retry.Wait() == 0 && (!found || turn.number < q.turns[next.Namespace].number) {
			next, found = p, true
		}
	}
	return next, found
}

// written removes a pod that has an event now. If the write failed, it moves the pod to the end, and delays its
// namespace.
func (q *queue) written(p pod, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := len(q.pods)
	q.pods = slices.DeleteFunc(q.pods, func(known pod) bool { return known.UID == p.UID })
	q.writes++
	last := turn{number: q.writes, retry: q.turns[p.Namespace].retry}

	if err == nil {
		last.retry.Reset()
		q.remember(p.UID)
	} else {
		last.retry.Failed(err)
		if len(q.pods) < waiting {
			q.pods = append(q.pods, p)
		}
	}
	if q.turns == nil {
		q.turns = map[string]turn{}
	}
	q.turns[p.Namespace] = last
}

func (q *queue) remember(uid types.UID) {
	if q.judged == nil || len(q.judged) >= maxJudged {
		q.judged = map[types.UID]struct{}{}
	}
	q.judged[uid] = struct{}{}
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pods) == 0
}

// namesOf returns the extended resources in the limits of a pod that may be classes: the first maxNames in alphabetical
// order, and the number of the omitted ones. It returns none until the scheduler has reported that no node fits.
func namesOf(pod *corev1.Pod) (names []string, omitted int) {
	unschedulable := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
	if !unschedulable || pod.DeletionTimestamp != nil {
		return nil, 0
	}

	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Limits {
				if _, base, _ := strings.Cut(string(name), "/"); strings.Contains(base, ".") && len(name) <= maxName {
					names = append(names, string(name))
				}
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	kept := min(len(names), maxNames)
	return slices.Clone(names[:kept]), len(names) - kept
}
