// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage measures, on request, the resource usage of classes, containers and pods.
package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These constants limit how often the meter reads from the kernel, and how long a caller waits for a reading.
const (
	// minAge is the age at which a sample becomes too old, so that Usage measures again. A measurement of 500 containers
	// takes about 1000 system calls.
	minAge = time.Second
	// sharedAge is the age at which a sample becomes too old for UsageNow. The history and the check of promises begin
	// their samples at the same time.
	sharedAge = 200 * time.Millisecond
	// sampleTime is the time after which a sample begins no more readings. readTime limits the reading of one class or
	// container. On a busy node, a reading can take long, because resctrl waits for one CPU of each cache. The sum of
	// sampleTime and readTime is shorter than the timeout of a scrape.
	sampleTime = 2500 * time.Millisecond
	readTime   = 2 * time.Second
	// maxBlocked is how many readings may be blocked in the kernel. With so many, nothing is measured until one of
	// them returns.
	maxBlocked = 50
)

// errNotMeasured is the error for a resource whose holders the kernel does not measure.
var errNotMeasured = errors.New("the kernel does not measure single containers or pods")

// errLate is the error of a reading that takes longer than readTime.
var errLate = errors.New("the kernel did not answer in time")

// Meter measures usage. It reads from the kernel only in calls of its methods. Usage reads all values. Last and Before read
// the values of one holder before these values are lost or count for another class. Meter is safe for concurrent use.
type Meter struct {
	store *state.View
	guard *kernel.Guard // separate from the guard of the hooks, so that blocked readings do not count there
	now   func() time.Time
	// The semaphore `sampling` lets one caller at a time take a sample. It guards the field `sample`.
	sampling *semaphore.Weighted
	sample   Sample

	mu sync.Mutex // guards the fields below
	// The map `base` has the last reading of each holder. The usage of a holder counts from its first reading, or
	// from 0 if Started has recorded an empty reading.
	base map[key]classes.Reading
	// The map `totals` has the usage of each class since the process started, for resources that measure only holders.
	totals map[class]classes.Reading
	// The map `pods` has, by resource and sandbox, the part of the counters of a pod's cgroup that is already counted. This
	// part is the values at the first reading, plus the growth that was counted for the pod's containers since then.
	pods map[key]classes.Reading
}

type class struct{ resource, name string }

// key identifies a holder by its ID, for one resource.
type key struct{ resource, id string }

// Sample is the usage at one moment.
type Sample struct {
	Time    time.Time
	Classes []Class
	Holders []Holder
}

// Class is the usage of a class. Cumulative values count from the start of this process. If they are the sum of the
// holders' values, the sum includes holders that have ended.
type Class struct {
	Resource, Class string
	Reading         classes.Reading
}

// Holder is the usage of a running container or pod in its present class. Cumulative values count from the cgroup's creation, or,
// if the backend is a classes.Monitor, from the start of the container's monitoring or of this process.
type Holder struct {
	classes.Holder
	Resource, Class string
	Reading         classes.Reading
}

// New returns a meter.
func New(store *state.View, guard *kernel.Guard, now func() time.Time) *Meter {
	return &Meter{
		store: store, guard: guard.Apart(maxBlocked), now: now, sampling: semaphore.NewWeighted(1), base: map[key]classes.Reading{},
		totals: map[class]classes.Reading{}, pods: map[key]classes.Reading{},
	}
}

// Usage returns the usage of all classes, containers and pods. It measures only if the last sample is older than
// minAge. The sample lacks values for which the kernel does not answer in time.
func (m *Meter) Usage(ctx context.Context) (Sample, error) { return m.sampleWithin(ctx, minAge) }

// UsageNow works like Usage, but measures unless the last sample is younger than sharedAge, e.g. because another client
// has just measured.
func (m *Meter) UsageNow(ctx context.Context) (Sample, error) { return m.sampleWithin(ctx, sharedAge) }

func (m *Meter) sampleWithin(ctx context.Context, limit time.Duration) (Sample, error) {
	waiting, cancel := context.WithTimeout(ctx, sampleTime+readTime)
	defer cancel()
	if err := m.sampling.Acquire(waiting, 1); err != nil {
		return Sample{}, fmt.Errorf("wait for the measurement in progress: %w", err)
	}
	defer m.sampling.Release(1)

	if age := m.now().Sub(m.sample.Time); age >= limit || age < 0 {
		// Other clients wait for this sample too, so it is taken even if the request of the first client ends.
		measuring, stop := context.WithTimeout(context.WithoutCancel(ctx), sampleTime)
		defer stop()
		m.sample = m.measure(measuring)
	}
	return m.sample, nil
}

// Started records that a container's usage starts at 0 for its classes. It must be called before the container's first
// instruction. Without this record, the usage counts only from the first reading, because the container's earlier classes
// are unknown. For the first container of a pod, Started also begins to count the pod. If the container has a class,
// Started waits for the reading of the pod, but no longer than kernel.Briefly waits.
func (m *Meter) Started(e state.Holding) {
	first, hasClass := m.startAtZero(e)
	if len(first) == 0 || len(m.others(e.Holder)) > 0 {
		return // the pod is counted already, or it ran before this process, so that beginPods begins to count it
	}

	begin := func() {
		for _, resource := range first {
			m.beginFirst(context.Background(), resource, e)
		}
	}
	if hasClass {
		kernel.Briefly(begin)
		return
	}
	// The start of a container without a class must not be delayed, so the hook does not wait for the reading of the
	// pod. The usage between the readings of the container's cgroup and of the pod's cgroup is then not counted.
	// Each reading takes at most readTime.
	go begin()
}

// startAtZero records that a container has used nothing. `first` has the resources for which its pod must be counted
// and is not counted yet. `hasClass` is true if the container has a class of any resource.
func (m *Meter) startAtZero(e state.Holding) (first []string, hasClass bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range e.Assignments {
		hasClass = hasClass || a.Class != classes.SystemDefault
		meter := m.holderMeter(a.Resource)
		if meter == nil {
			continue
		}
		m.base[key{resource: a.Resource, id: e.ID}] = classes.Reading{}
		if meter.SumsEnded() && m.pods[podOf(a.Resource, e.Holder)] == nil {
			first = append(first, a.Resource)
		}
	}
	return first, hasClass
}

// Last reads the usage of a container or pod that has ended. If the cgroup of a container is gone, Last finds the usage
// in the counters of the pod's cgroup. Last waits for the kernel no longer than kernel.Briefly waits. It must be
// called before the store releases the holder.
func (m *Meter) Last(id string) {
	e, known := m.store.Get(id)
	if !known || !e.Phase.Started() {
		m.drop(id)
		return
	}

	kernel.Briefly(func() {
		for _, a := range e.Assignments {
			m.countLast(context.Background(), e.Holder, a.Resource, e.ObservedClass(a.Resource))
		}
		m.drop(id)
	})
}

// drop removes what the meter stores about a container, or about a pod by the ID of its sandbox.
func (m *Meter) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.base, func(k key, _ classes.Reading) bool { return k.id == id })
	maps.DeleteFunc(m.pods, func(k key, _ classes.Reading) bool { return k.id == id })
}

// Before reads the usage of a holder that is about to leave a class, so that the usage counts for this class.
func (m *Meter) Before(ctx context.Context, h classes.Holder, resource, from string) {
	if m.holderMeter(resource) == nil {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if m.sampling.Acquire(ctx, 1) == nil {
		defer m.sampling.Release(1)
		m.countLast(ctx, h, resource, from)
	}
}

// countLast counts the usage of a holder that is about to leave a class, or has ended.
func (m *Meter) countLast(ctx context.Context, h classes.Holder, resource, name string) {
	reading, err := m.measureHolder(ctx, h, resource)
	if m.count(h, resource, name, reading, err); len(reading) == 0 && errors.Is(err, classes.ErrEnded) {
		m.countEnded(ctx, h, resource, name)
	}
}

// count adds the growth of a holder's usage since the last reading to the totals of a class. A value that has decreased adds nothing,
// because its counter has restarted at 0, e.g. when a disk was removed and added again. With an error, `reading` has what could be read.
func (m *Meter) count(h classes.Holder, resource, name string, reading classes.Reading, err error) {
	if err == nil || len(reading) > 0 {
		m.add(key{resource: resource, id: h.ID}, class{resource, name}, podOf(resource, h), reading)
	}
}

// measureHolder reads the usage of a holder. The error is classes.ErrEnded if the holder has no cgroup. With an error, the reading has the
// values that could be read.
func (m *Meter) measureHolder(ctx context.Context, h classes.Holder, resource string) (classes.Reading, error) {
	meter := m.holderMeter(resource)
	if meter == nil {
		return nil, errNotMeasured
	}
	return read(ctx, nil, m.guard, callOf(resource, h.ID), func() string { return whatOf(resource, h) },
		func(ctx context.Context) (classes.Reading, error) { return meter.MeasureHolder(ctx, h) })
}

func callOf(resource, id string) kernel.Call {
	return kernel.Call{Resource: "usage of " + resource, HolderID: id}
}

func whatOf(resource string, h classes.Holder) string {
	return fmt.Sprintf("measure %s of %s", resource, h)
}

// holderMeter returns the backend of an available resource, or nil if the kernel does not measure holders for it.
func (m *Meter) holderMeter(resource string) classes.HolderMeter {
	r := m.store.Live().Resources[resource]
	meter, ok := r.Backend.(classes.HolderMeter)
	if !ok || r.Unavailable != nil {
		return nil
	}
	return meter
}

// read makes a call into the kernel, unless ctx has ended. The call may take readTime even if ctx ends earlier,
// because a call that is given up early would be reported as blocked in the kernel.
func read[T any](
	ctx context.Context, worker *kernel.Worker, guard *kernel.Guard, call kernel.Call, what func() string, do func(context.Context) (T, error),
) (reading T, err error) {
	if ctx.Err() != nil {
		return reading, ctx.Err()
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), readTime, errLate)
	defer cancel()
	return kernel.AwaitOn(ctx, worker, guard, call, what, func() (T, error) { return do(ctx) })
}

// add adds the growth of cumulative values since the last reading to the totals of a class, and to the counted part of
// a pod's usage.
func (m *Meter) add(k key, c class, pod key, reading classes.Reading) {
	m.mu.Lock()
	defer m.mu.Unlock()

	base, known := m.base[k]
	if base == nil {
		base = classes.Reading{}
		m.base[k] = base
	}
	for series, value := range reading {
		switch {
		case !series.Cumulative():
		case known:
			m.grow(c, pod, series, value-base[series])
		default:
			m.grow(c, pod, series, 0)
		}
		base[series] = value
	}
}

// grow adds the growth of one value to the totals of a class, and to the counted part of a pod's usage. It adds nothing
// if the value has decreased. The caller holds mu.
func (m *Meter) grow(c class, pod key, series classes.Series, growth float64) {
	totals := m.totals[c]
	if totals == nil {
		totals = classes.Reading{}
		m.totals[c] = totals
	}
	totals[series] += max(0, growth)

	if counted := m.pods[pod]; counted != nil {
		counted[series] += max(0, growth)
	}
}
