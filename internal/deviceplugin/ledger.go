// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// ledger remembers what kubelet has allocated, beyond what it tells at the moment. After its start kubelet answers before
// it knows its pods, and learns of them one by one, while it already refuses pods whose devices are not healthy.
type ledger struct {
	settle time.Duration // how long kubelet may take from its start until it knows all of its pods
	until  time.Time     // when it has taken that
	// learned is whether kubelet has told all of its pods once.
	learned bool
	// devices are those that kubelet told last, by extended resource and container.
	devices map[string]map[owner][]string
	// granted are device IDs that were handed out and never told since, by extended resource, with the time: those of init
	// containers, which kubelet does not tell.
	granted map[string]map[string]time.Time
}

func newLedger() *ledger {
	return &ledger{devices: map[string]map[owner][]string{}, granted: map[string]map[string]time.Time{}}
}

// restarted takes that kubelet may have started just now.
func (l *ledger) restarted(now time.Time) { l.until = now.Add(l.settle) }

func (l *ledger) settling(now time.Time) bool { return now.Before(l.until) }

// unsure is whether devices may be allocated of which we never heard.
func (l *ledger) unsure(now time.Time) bool { return !l.learned && l.settling(now) }

// grant takes which devices were handed out.
func (l *ledger) grant(granted map[string][]string, now time.Time) {
	for extended, ids := range granted {
		if l.granted[extended] == nil {
			l.granted[extended] = map[string]time.Time{}
		}
		for _, id := range ids {
			l.granted[extended][id] = now
		}
	}
}

// heard takes what kubelet answers, and adds to it the devices of pods that it does not tell: those that have a class by
// what kubelet allocated, and while kubelet settles any. It rather remembers for too long: a device that is free and
// listed costs nothing, one that is allocated and not listed costs the pod. A nil a is that nobody knows.
func (l *ledger) heard(h *holdings, list []class, a *qosv1alpha1.ListAssignmentsResponse, now time.Time) {
	settling := l.settling(now)
	l.learned = l.learned || !settling || a != nil && h.tells(a)
	h.unsure, h.settling = !l.learned, settling
	for _, c := range list {
		pods := podsIn(c, a)
		told := h.devices[c.extended]
		taken := idsOf(told)
		for holder, ids := range l.devices[c.extended] {
			pod := holder.ofPod()
			if h.pods[pod] || !settling && !pods[pod] {
				continue
			}
			if slices.ContainsFunc(ids, func(id string) bool {
				_, found := slices.BinarySearchFunc(taken, id, compareIDs)
				return found
			}) {
				continue // it is another one's by now
			}
			h.add(c.extended, holder, ids)
			h.remembered = true
		}
		for _, id := range idsOf(h.devices[c.extended]) {
			delete(l.granted[c.extended], id)
		}
		l.devices[c.extended] = h.devices[c.extended]
		h.granted[c.extended] = l.grants(c.extended)
	}
}

// alone is what is known when kubelet does not answer.
func (l *ledger) alone(list []class, now time.Time) *holdings {
	h := newHoldings()
	h.unsure = l.unsure(now)
	h.settling = l.settling(now)
	for _, c := range list {
		h.devices[c.extended] = maps.Clone(l.devices[c.extended])
		h.granted[c.extended] = l.grants(c.extended)
	}
	return h
}

// grants lists what was handed out and never told, the latest first.
func (l *ledger) grants(extended string) []string {
	granted := l.granted[extended]
	return slices.SortedFunc(maps.Keys(granted), func(a, b string) int {
		return cmp.Or(granted[b].Compare(granted[a]), compareIDs(a, b))
	})
}

func (l *ledger) forget(extended string) {
	delete(l.devices, extended)
	delete(l.granted, extended)
}

// tells is whether kubelet tells every pod that the plugin knows.
func (h *holdings) tells(a *qosv1alpha1.ListAssignmentsResponse) bool {
	for _, pod := range a.GetPods() {
		if !h.pods[owner{namespace: pod.GetNamespace(), pod: pod.GetName()}] {
			return false
		}
	}
	return true
}

// podsIn are the pods that have a class, or containers that have it, by what kubelet may have allocated. The source of a
// class of pod scope does not tell that.
func podsIn(c class, a *qosv1alpha1.ListAssignmentsResponse) map[owner]bool {
	pods := map[owner]bool{}
	for o, allocated := range ownersOf(c, a) {
		if allocated || o.container == "" {
			pods[o.ofPod()] = true
		}
	}
	return pods
}

// idsOf lists devices, each once, ordered.
func idsOf(devices map[owner][]string) []string {
	var ids []string
	for _, held := range devices {
		ids = append(ids, held...)
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// byName orders owners.
func byName(a, b owner) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.pod, b.pod),
		strings.Compare(a.uid, b.uid), strings.Compare(a.container, b.container))
}
