// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// settle starts the plugin if it does not run, waits until the node is settled (see unsettled), and checks the
// invariants.
func (s *Soak) settle(ctx context.Context) error {
	began := time.Now()
	if err := s.revive(ctx); err != nil {
		return s.violated([]string{fmt.Sprintf("the plugin does not start: %v", err)})
	}

	ctx, cancel := context.WithTimeout(ctx, s.options.Patience)
	defer cancel()
	if _, err := s.watchForeign(); err != nil {
		return err
	}

	var last invariant.World
	registered := &registration{since: time.Now(), restarted: s.restarted}
	machine := invariant.Machine{API: s.site.API(), Host: s.site.Host(), Live: s.site.Live, Before: s.before, Ignore: s.options.Ignore}
	if others, ok := s.site.(Others); ok {
		machine.ForeignFiles = others.ForeignFiles()
	}

	machine.Settled = func(w *invariant.World) []string {
		s.keepForeign(w.Foreign)
		w.Before = s.before
		w.Expect = s.known[fileInForce(w.Status)].expect(s.site.Machine())
		s.noteRetries(w.Status)
		w.Expect.Most = s.most(w.Status)
		last = *w
		return append(registered.unsettled(w.Status), s.unsettled(w)...)
	}

	wrong := machine.Wait(ctx)
	s.summary.settled = append(s.summary.settled, time.Since(began))
	if len(wrong) > 0 {
		wrong[0] = fmt.Sprintf("the node has not settled after %s: %s", s.options.Patience, wrong[0])
		return s.violated(wrong)
	}

	s.summary.monitors(last)
	s.calm = s.known[fileInForce(last.Status)].sameAs(s.file) && time.Since(s.sabotaged) > s.site.Machine().Notices
	return s.violated(s.watch(ctx, 0))
}

// quietTime is the time for which the plugin must stay registered before the node counts as settled. The plugin needs a
// moment to notice that the runtime has ended, or that new class files need a registration for other hooks.
const quietTime = 100 * time.Millisecond

// registration is the last observed registration of the plugin with the runtime.
type registration struct {
	at        time.Time // the time that the plugin reports
	since     time.Time // when the plugin first reported this time
	restarted time.Time // the last restart of the runtime
}

// unsettled returns the reasons why the plugin's registration is not settled.
func (r *registration) unsettled(status *qosv1alpha1.StatusResponse) []string {
	if at := status.GetRuntime().GetRegisteredAt().AsTime(); at != r.at {
		r.at, r.since = at, time.Now()
	}
	if r.at.Before(r.restarted) || time.Since(r.since) < quietTime {
		return []string{"the plugin has not registered again with a restarted runtime, or has just done so"}
	}
	return nil
}

// revive starts the plugin if it does not run. If a kill was planned and the plugin still runs, it kills the plugin
// and starts it again, so that the kill cannot happen later.
func (s *Soak) revive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, operationTime)
	defer cancel()
	if s.pluginRuns() && s.summary.killed() {
		if err := s.site.KillPlugin(ctx, 0); err != nil {
			return err
		}
	}
	if s.pluginRuns() {
		return nil
	}
	return s.site.StartPlugin(ctx)
}

func (s *Soak) pluginRuns() bool {
	runs, _ := s.site.PluginRuns() // errors are checked after every step
	return runs
}

// unsettled returns the reasons why the node is not settled, e.g. an earlier class file in force, or containers that
// are not in their class.
func (s *Soak) unsettled(w *invariant.World) []string {
	var wrong []string
	config := w.Status.GetConfig()
	refused, unknown := config.GetLastError() != "", s.unknownFile(w.Status)
	switch {
	case s.file.wrong != "" && !refused:
		wrong = append(wrong, "a wrong class file is not refused")
	case s.file.wrong == "" && refused:
		wrong = append(wrong, "the class file is refused: "+config.GetLastError())
	case s.file.wrong == "" && !unknown && fileInForce(w.Status) != s.file.number:
		wrong = append(wrong, fmt.Sprintf("class file %d is in force, and not %d", fileInForce(w.Status), s.file.number))
	}

	wrong = append(wrong, misplaced(w)...)
	wrong = append(wrong, s.lostChanges(w)...)
	for _, r := range w.Status.GetUnavailableResources() {
		wrong = append(wrong, fmt.Sprintf("%s is unavailable: %s", r.GetName(), r.GetMessage()))
	}

	return wrong
}

// misplaced returns the running containers that are not in their class.
func misplaced(w *invariant.World) []string {
	var wrong []string
	for _, ctr := range w.Live.Containers {
		for _, a := range assignmentsOf(w, ctr.ID) {
			if ctr.Started && a.GetSource() == qosv1alpha1.Source_SOURCE_ADOPTED && !lacks(w.Status, a.GetName()) && !lost(w, a) {
				wrong = append(wrong, fmt.Sprintf("%s is not in its class of %s but in %q", ctr, a.GetName(), a.GetClass()))
			}
		}
	}
	return wrong
}

// lost reports whether the assignment `a` can be that of a holder of a draining class whose group was removed while no plugin ran. The
// plugin cannot restore such a group, because the group's values are not stored anywhere else. It reports the holders of the class in the
// group to which the kernel has moved them.
func lost(w *invariant.World, a *qosv1alpha1.Assignment) bool {
	gone := false
	eachClass(w.Status, func(resource string, class *qosv1alpha1.QOSResourceClassInfo) {
		_, there := w.Kernel.Groups["qos-"+class.GetName()]
		gone = gone || resource == rdt && class.GetDraining() && !there
	})
	return gone && a.GetName() == rdt && a.GetSource() == qosv1alpha1.Source_SOURCE_ADOPTED
}

// lostChanges returns the containers that are no longer in the class of their last update.
func (s *Soak) lostChanges(w *invariant.World) []string {
	var wrong []string
	for _, p := range s.pods {
		for _, c := range p.containers {
			for _, a := range assignmentsOf(w, c.id) {
				want, changed := c.changed[a.GetName()]
				if changed && a.GetClass() != want && !lacks(w.Status, a.GetName()) && !lost(w, a) {
					wrong = append(wrong, fmt.Sprintf("%s was changed to class %q of %s, but has %q", c, want, a.GetName(), a.GetClass()))
				}
			}
		}
	}
	return wrong
}

func assignmentsOf(w *invariant.World, id string) []*qosv1alpha1.Assignment {
	for _, pod := range w.Assignments.GetPods() {
		for _, ctr := range pod.GetContainers() {
			if ctr.GetId() == id {
				return ctr.GetQosResources()
			}
		}
	}
	return nil
}

// unknownFile reports whether the class file in force is unknown, because no class description has a file number.
func (s *Soak) unknownFile(status *qosv1alpha1.StatusResponse) bool { return fileInForce(status) == 0 }

// lacks reports whether a resource is not offered.
func lacks(status *qosv1alpha1.StatusResponse, resource string) bool {
	reported := map[string]bool{}
	eachClass(status, func(name string, _ *qosv1alpha1.QOSResourceClassInfo) { reported[name] = true })
	return !reported[resource]
}

// sameAs reports whether two class files are equal, except for their numbers and their errors.
func (c classFile) sameAs(other classFile) bool {
	other.number, other.wrong = c.number, c.wrong
	return c == other
}

// placed checks that a container that was just started is in its requested class in the kernel.
func (s *Soak) placed(ctx context.Context, id string, a request) error {
	wanted := a.classes[rdt]
	if wanted == "" {
		return nil
	}

	live, err := s.site.Live(ctx)
	if err != nil {
		return err
	}

	live = invariant.Live{Containers: slices.DeleteFunc(live.Containers, func(c invariant.Container) bool { return c.ID != id })}
	kernel, err := invariant.KernelOf(s.site.Host(), live)
	if err != nil {
		return err
	}

	group := kernel.Groups["qos-"+wanted]
	for _, thread := range kernel.Cgroups[id].Threads {
		if !slices.Contains(group.Tasks, thread) {
			return fmt.Errorf("thread %d has started outside of qos-%s; there are %v", thread, wanted, slices.Sorted(maps.Keys(kernel.Groups)))
		}
	}

	return nil
}
