// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// measure takes a sample. It measures all resources concurrently, so that a slow call into the kernel for one resource
// does not delay the other resources. The caller has acquired the semaphore m.sampling.
func (m *Meter) measure(ctx context.Context) Sample {
	status := m.store.Status()
	entries := m.forget(status)

	parts := make([]Sample, len(status.Resources))
	var measuring sync.WaitGroup
	for i, resource := range status.Resources {
		if resource.Unavailable == nil {
			measuring.Go(func() { parts[i] = m.measureResource(ctx, resource, entries) })
		}
	}
	measuring.Wait()

	sample := Sample{Time: m.now()}
	for _, part := range parts {
		sample.Classes = append(sample.Classes, part.Classes...)
		sample.Holders = append(sample.Holders, part.Holders...)
	}
	return sample
}

func (m *Meter) measureResource(ctx context.Context, resource state.ResourceStatus, entries []state.Holding) (part Sample) {
	backend, _ := m.store.Live().Resource(resource.Name)
	var worker kernel.Worker
	defer worker.End()
	switch meter := backend.Backend.(type) {
	case classes.ClassMeter:
		var containers map[string]classes.Reading
		part.Classes, containers = m.measureClasses(ctx, meter, resource)
		part.Holders = holdersOf(resource.Name, entries, func(e state.Holding) (classes.Reading, bool) {
			reading := containers[e.ID]
			return reading, len(reading) > 0
		})
	case classes.HolderMeter:
		part.Holders = holdersOf(resource.Name, entries, func(e state.Holding) (classes.Reading, bool) {
			reading, err := m.count(ctx, &worker, e.Holder, resource.Name, e.ObservedClass(resource.Name))
			return reading, err == nil && reading != nil
		})
		m.beginPods(ctx, resource.Name, entries)
		part.Classes = m.totalsOf(resource)
	case classes.VolumeMeter:
		part.Holders = holdersOf(resource.Name, entries, func(e state.Holding) (classes.Reading, bool) {
			reading := m.measureVolume(ctx, &worker, meter, e.Holder, resource.Name)
			return reading, len(reading) > 0
		})
	}
	return part
}

// namesOf returns all classes of a resource: the system default, those that are offered, and those that are in use.
func namesOf(resource state.ResourceStatus) []string {
	names := []string{classes.SystemDefault}
	for _, offered := range resource.Classes {
		names = append(names, offered.Name)
	}
	names = slices.AppendSeq(names, maps.Keys(resource.InUse))
	slices.Sort(names)
	return slices.Compact(names)
}

// measureClasses measures each class of a resource, and the monitored containers in it. It returns the readings of
// containers by container ID. A class has only the series that the kernel shows now.
func (m *Meter) measureClasses(
	ctx context.Context, meter classes.ClassMeter, resource state.ResourceStatus,
) (all []Class, containers map[string]classes.Reading) {
	var worker kernel.Worker
	defer worker.End()
	containers = map[string]classes.Reading{}
	for _, name := range namesOf(resource) {
		call := kernel.Call{Resource: "usage of " + resource.Name, Class: name}
		what := func() string { return fmt.Sprintf("measure class %q of %s", name, resource.Name) }
		reading, _ := read(ctx, &worker, m.guard, call, what, func(ctx context.Context) (classes.ClassReading, error) {
			return meter.MeasureClass(ctx, name)
		})
		maps.Copy(containers, reading.Containers)
		if len(reading.Class) > 0 { // otherwise the next sample tries again
			all = append(all, Class{resource.Name, name, reading.Class})
		}
	}
	return all, containers
}

func (m *Meter) measureVolume(
	ctx context.Context, worker *kernel.Worker, meter classes.VolumeMeter, volume classes.Holder, resource string,
) classes.Reading {
	call := kernel.Call{Resource: "usage of " + resource, HolderID: volume.ID}
	what := func() string { return fmt.Sprintf("measure %s of %s", resource, volume) }
	reading, _ := read(ctx, worker, m.guard, call, what, func(ctx context.Context) (classes.Reading, error) { // the next sample tries again
		return meter.MeasureVolume(ctx, volume)
	})
	return reading
}

// holdersOf measures the running holders that have a class of a resource, in the order of their names.
func holdersOf(resource string, entries []state.Holding, measure func(state.Holding) (classes.Reading, bool)) (all []Holder) {
	for _, e := range entries {
		assigned := slices.ContainsFunc(e.Assignments, func(a classes.Assignment) bool { return a.Resource == resource })
		if !assigned || !e.Phase.Started() {
			continue
		}
		if reading, ok := measure(e); ok {
			all = append(all, Holder{e.Holder, resource, e.ObservedClass(resource), reading})
		}
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(strings.Compare(a.PodNamespace, b.PodNamespace), strings.Compare(a.PodName, b.PodName),
			strings.Compare(a.Container, b.Container), strings.Compare(a.Volume, b.Volume), strings.Compare(a.ID, b.ID))
	})
	return all
}

func (m *Meter) totalsOf(resource state.ResourceStatus) (all []Class) {
	for _, name := range namesOf(resource) {
		if totals := m.total(class{resource.Name, name}); totals != nil {
			all = append(all, Class{resource.Name, name, totals})
		}
	}
	return all
}

// total returns a copy of the totals of a class.
func (m *Meter) total(c class) classes.Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.totals[c])
}

// forget removes what the meter stores about released holders, and about classes that are neither offered nor in use.
// It returns the entries of all holders in the store.
func (m *Meter) forget(status state.Status) []state.Holding {
	named := map[class]bool{}
	for _, resource := range status.Resources {
		for _, name := range namesOf(resource) {
			named[class{resource.Name, name}] = true
		}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	entries := m.store.Where(func(*state.Holding) bool { return true }) // within mu, so that Started does not record a holder that is not in entries
	holders, sandboxes := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		holders[e.ID], sandboxes[e.SandboxID] = true, true
	}
	maps.DeleteFunc(m.pods, func(k key, _ classes.Reading) bool { return !sandboxes[k.id] })
	maps.DeleteFunc(m.totals, func(c class, _ classes.Reading) bool { return !named[c] })
	maps.DeleteFunc(m.base, func(k key, _ classes.Reading) bool { return !holders[k.id] })
	return entries
}
