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

	sample, holders := Sample{Time: m.now()}, make([][]Holder, len(parts))
	for i, part := range parts {
		sample.Classes = append(sample.Classes, part.Classes...)
		holders[i] = part.Holders
	}
	sample.Holders = slices.Concat(holders...)
	return sample
}

func (m *Meter) measureResource(ctx context.Context, resource state.ResourceStatus, entries []state.Holding) (part Sample) {
	backend := m.store.Live().Resources[resource.Name]
	holders := holdersOf(resource.Name, entries)
	part.Holders = make([]Holder, 0, len(holders))
	switch meter := backend.Backend.(type) {
	case classes.ClassMeter:
		var containers map[string]classes.Reading
		part.Classes, containers = m.measureClasses(ctx, meter, resource)
		for _, e := range holders {
			part.add(resource.Name, e, containers[e.ID], len(containers[e.ID]) > 0)
		}
	case classes.HolderMeter:
		m.measureEach(ctx, resource.Name, holders, meter.MeasureHolder, func(e *state.Holding, reading classes.Reading, err error) {
			m.count(e.Holder, resource.Name, e.ObservedClass(resource.Name), reading, err)
			part.add(resource.Name, e, reading, err == nil && reading != nil || len(reading) > 0)
		})
		m.beginPods(ctx, resource.Name, entries)
		part.Classes = m.totalsOf(resource)
	case classes.VolumeMeter:
		m.measureEach(ctx, resource.Name, holders, meter.MeasureVolume, func(e *state.Holding, reading classes.Reading, _ error) {
			part.add(resource.Name, e, reading, len(reading) > 0)
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
// containers by container ID. `all` has what the kernel shows now, and no class of which it shows nothing.
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

// measureEach measures holders one after another. The function `then` gets the reading of each.
func (m *Meter) measureEach(ctx context.Context, resource string, holders []*state.Holding,
	measure func(context.Context, classes.Holder) (classes.Reading, error), then func(*state.Holding, classes.Reading, error),
) {
	var worker kernel.Worker
	defer worker.End()
	kernel.Calls[classes.Reading]{
		Guard: m.guard, Limit: readTime,
		Call: func(i int) kernel.Call { return callOf(resource, holders[i].ID) },
		What: func(i int) string { return whatOf(resource, holders[i].Holder) },
		Do:   func(ctx context.Context, i int) (classes.Reading, error) { return measure(ctx, holders[i].Holder) },
		Then: func(i int, reading classes.Reading, err error) { then(holders[i], reading, err) },
	}.Each(ctx, &worker, len(holders), errLate)
}

// holdersOf returns the running holders that have a class of a resource, in the order of their names.
func holdersOf(resource string, entries []state.Holding) (all []*state.Holding) {
	for i := range entries {
		e := &entries[i]
		if e.Phase.Started() && slices.ContainsFunc(e.Assignments, func(a classes.Assignment) bool { return a.Resource == resource }) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *state.Holding) int {
		return cmp.Or(strings.Compare(a.PodNamespace, b.PodNamespace), strings.Compare(a.PodName, b.PodName),
			strings.Compare(a.Container, b.Container), strings.Compare(a.Volume, b.Volume), strings.Compare(a.ID, b.ID))
	})
	return all
}

// add adds the reading of a holder if it was measured.
func (s *Sample) add(resource string, e *state.Holding, reading classes.Reading, measured bool) {
	if measured {
		s.Holders = append(s.Holders, Holder{e.Holder, resource, e.ObservedClass(resource), reading})
	}
}

// totalsOf returns copies of the totals of the classes of a resource.
func (m *Meter) totalsOf(resource state.ResourceStatus) (all []Class) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range namesOf(resource) {
		if totals := m.totals[class{resource.Name, name}]; totals != nil {
			all = append(all, Class{resource.Name, name, maps.Clone(totals)})
		}
	}
	return all
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
