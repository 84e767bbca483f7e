// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
)

const (
	podResourcesDirectory = "pod-resources"

	listTimeout = 5 * time.Second
	// maxAnswer is the largest answer that the publisher accepts from kubelet, in bytes. Kubelet's own client has the same limit.
	maxAnswer = 16 << 20
)

// owner is a container or pod that has a class. Kubelet reports only names, so owners that are read from kubelet's answers
// have no UID.
type owner struct {
	namespace, pod string
	qos.Subject
}

func (o owner) inKubelet() owner {
	o.PodUID = ""
	return o
}

func (o owner) podInKubelet() owner {
	return owner{namespace: o.namespace, pod: o.pod}
}

// allocations has what kubelet reports in one answer, and the cached devices of pods that are missing from the answer.
type allocations struct {
	pods map[owner]bool // the pods in the answer
	// The map `devices` has the devices of each container by extended resource. Kubelet does not report init containers that
	// run to completion.
	devices map[string]map[owner][]string
	// The map `granted` has, by extended resource, the IDs of devices that Allocate has granted and kubelet has not reported
	// since. The latest grants are first.
	granted map[string][]string

	fromCache  bool // true if some devices belong to pods that kubelet does not report
	incomplete bool // true if kubelet may have allocated devices that it has not reported yet
	starting   bool // true if kubelet may have started just now
}

func newAllocations() *allocations {
	return &allocations{pods: map[owner]bool{}, devices: map[string]map[owner][]string{}, granted: map[string][]string{}}
}

func (p *Publisher) listAllocations(ctx context.Context) (*allocations, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	socket := filepath.Join(p.kubeletDir, podResourcesDirectory, kubeletSocket)
	conn, err := unixsocket.Dial(socket, maxAnswer)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()

	list, err := podresourcesv1.NewPodResourcesListerClient(conn).List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list allocated devices on %s: %s", socket, status.Convert(err).Message())
	}
	return parseAllocations(list), nil
}

func parseAllocations(list *podresourcesv1.ListPodResourcesResponse) *allocations {
	a := newAllocations()
	for _, pod := range list.GetPodResources() {
		o := owner{namespace: pod.GetNamespace(), pod: pod.GetName()}
		a.pods[o] = true
		for _, ctr := range pod.GetContainers() {
			o.Container = ctr.GetName()
			for _, d := range ctr.GetDevices() {
				a.add(d.GetResourceName(), o, d.GetDeviceIds())
			}
		}
	}
	return a
}

func (a *allocations) add(resource string, holder owner, ids []string) {
	if a.devices[resource] == nil {
		a.devices[resource] = map[owner][]string{}
	}
	a.devices[resource][holder] = append(a.devices[resource][holder], ids...)
}

// holders returns the containers that hold devices of a class, and also the pods of these containers.
func (a *allocations) holders(c class) map[owner]bool {
	holders := map[owner]bool{}
	for holder := range a.devices[c.extended] {
		holders[holder], holders[holder.podInKubelet()] = true, true
	}
	return holders
}

// complete reports whether kubelet reports every pod that is in the assignments.
func (a *allocations) complete(assignments *qosv1alpha1.ListAssignmentsResponse) bool {
	return !slices.ContainsFunc(assignments.GetPods(), func(pod *qosv1alpha1.PodAssignments) bool {
		return !a.pods[owner{namespace: pod.GetNamespace(), pod: pod.GetName()}]
	})
}

func deviceIDs(devices map[owner][]string) []string {
	ids := slices.Concat(slices.Collect(maps.Values(devices))...)
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// allocationCache keeps allocations that kubelet temporarily does not report. A kubelet that has just started answers
// before it has loaded its pods, and then reports the pods one by one. The cached devices stay healthy during that
// time, because kubelet already rejects pods whose devices are not healthy.
type allocationCache struct {
	startup    time.Duration // how long kubelet may take to report all pods after its start
	startupEnd time.Time
	// synced is true after kubelet has reported all of its pods once.
	synced bool
	// The map `devices` has the devices in kubelet's last answer. For pods that are missing from that answer, it has the
	// cached devices. It has the same keys as allocations.devices.
	devices map[string]map[owner][]string
	// The map `granted` has the devices that Allocate has granted, but kubelet has not reported since, e.g. because an init
	// container holds them. The keys are the extended resource and the device ID. The value is the time of the grant.
	granted map[string]map[string]time.Time
}

// newAllocationCache returns an empty cache. It assumes that kubelet has just started.
func newAllocationCache(startup time.Duration, now time.Time) *allocationCache {
	return &allocationCache{
		startup: startup, startupEnd: now.Add(startup),
		devices: map[string]map[owner][]string{}, granted: map[string]map[string]time.Time{},
	}
}

// kubeletRestarted begins a new startup period. It is called when kubelet may have just started.
func (l *allocationCache) kubeletRestarted(now time.Time) { l.startupEnd = now.Add(l.startup) }

func (l *allocationCache) starting(now time.Time) bool { return now.Before(l.startupEnd) }

func (l *allocationCache) grant(granted map[string][]string, now time.Time) {
	for extended, ids := range granted {
		if l.granted[extended] == nil {
			l.granted[extended] = map[string]time.Time{}
		}
		for _, id := range ids {
			l.granted[extended][id] = now
		}
	}
}

// merge stores kubelet's answer, and adds the cached devices of pods that are missing from the answer. While kubelet
// starts, merge adds them for every missing pod. Later it adds them only for a missing pod with a class of pod scope or
// a class that kubelet allocated. The parameter `assignments` is nil if the assignments are unknown.
//
// If in doubt, merge keeps a device. A free device that stays listed is harmless, but if an allocated device is not
// listed, kubelet fails the device's pod.
func (l *allocationCache) merge(a *allocations, list []class, assignments *qosv1alpha1.ListAssignmentsResponse, now time.Time) {
	starting := l.starting(now)
	l.synced = l.synced || !starting || assignments != nil && a.complete(assignments)
	a.incomplete, a.starting = !l.synced, starting

	for _, c := range list {
		pods := podsWithDevices(c, assignments)
		reported := deviceIDs(a.devices[c.extended])
		for holder, ids := range l.devices[c.extended] {
			pod := holder.podInKubelet()
			reallocated := func(id string) bool { return slices.Contains(reported, id) }
			if a.pods[pod] || !starting && !pods[pod] || slices.ContainsFunc(ids, reallocated) {
				continue
			}
			a.add(c.extended, holder, ids)
			a.fromCache = true
		}

		for _, id := range deviceIDs(a.devices[c.extended]) {
			delete(l.granted[c.extended], id)
		}
		l.devices[c.extended] = a.devices[c.extended]
		a.granted[c.extended] = l.grants(c.extended)
	}
}

// cached returns the cached allocations. The publisher uses them while kubelet does not answer.
func (l *allocationCache) cached(list []class, now time.Time) *allocations {
	a := newAllocations()
	a.starting = l.starting(now)
	a.incomplete = !l.synced && a.starting
	for _, c := range list {
		a.devices[c.extended] = maps.Clone(l.devices[c.extended])
		a.granted[c.extended] = l.grants(c.extended)
	}
	return a
}

// grants returns the granted devices that kubelet has not reported. The latest grants are first.
func (l *allocationCache) grants(extended string) []string {
	granted := l.granted[extended]
	return slices.SortedFunc(maps.Keys(granted), func(a, b string) int {
		return cmp.Or(granted[b].Compare(granted[a]), compareIDs(a, b))
	})
}

func (l *allocationCache) delete(extended string) {
	delete(l.devices, extended)
	delete(l.granted, extended)
}
