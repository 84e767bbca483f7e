// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package replicated

import (
	"strings"

	"k8s.io/client-go/util/workqueue"
)

// NewQueue returns a work queue with keys of the form NAMESPACE/NAME. The namespaces take turns, so that a namespace with many keys delays
// the others by one key each.
func NewQueue() workqueue.TypedDelayingInterface[string] {
	keys := workqueue.TypedQueueConfig[string]{Queue: &turns{waiting: map[string][]string{}}}
	queue := workqueue.TypedDelayingQueueConfig[string]{Queue: workqueue.NewTypedWithConfig(keys)}
	return workqueue.NewTypedDelayingQueueWithConfig(queue)
}

// turns is the storage of a work queue.
type turns struct {
	waiting map[string][]string // the keys of each namespace that has any, in the order in which they were added
	order   []string            // the namespaces in `waiting`; the first one is next
	length  int
}

func (*turns) Touch(string) {}

func (t *turns) Len() int { return t.length }

func (t *turns) Push(key string) {
	namespace, _, _ := strings.Cut(key, "/")
	if len(t.waiting[namespace]) == 0 {
		t.order = append(t.order, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], key)
	t.length++
}

func (t *turns) Pop() (key string) {
	namespace := t.order[0]
	t.order = t.order[1:]
	key, t.waiting[namespace] = t.waiting[namespace][0], t.waiting[namespace][1:]
	t.length--

	if len(t.waiting[namespace]) > 0 {
		t.order = append(t.order, namespace)
	} else {
		delete(t.waiting, namespace)
	}
	return key
}
