// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// mostPods is the maximum number of pods at a time.
const mostPods = 25

// life returns the actions (kinds of operations) that create, change and end pods and containers.
func life() []action {
	return []action{
		{weight: 20, plan: (*Soak).newPod},
		{weight: 10, plan: (*Soak).newContainer},
		{weight: 4, plan: (*Soak).start},
		{weight: 8, plan: onRunning((*Soak).exit)},
		{weight: 6, plan: (*Soak).removeContainer},
		{weight: 8, plan: (*Soak).endPod},
		{weight: 6, plan: onRunning((*Soak).crashLoop)},
		{weight: 8, plan: onRunning((*Soak).exec)},
		{weight: 2, plan: (*Soak).execEverywhere, alone: true},
		{weight: 8, plan: onRunning((*Soak).fork)},
		{weight: 3, plan: onRunning((*Soak).resize)},
		{weight: 16, plan: onRunning((*Soak).update)},
		{weight: 3, plan: onRunning((*Soak).updateAtTheEnd)},
	}
}

// onRunning returns a plan for a random container that runs. No operation is possible if there is none.
func onRunning(plan func(s *Soak, c *container) *operation) func(s *Soak) *operation {
	return func(s *Soak) *operation {
		if c := s.anyContainer(running); c != nil {
			return plan(s, c)
		}
		return nil
	}
}

// newPod runs a pod with a container, which is not always started.
func (s *Soak) newPod() *operation { return s.newPodRequesting(newRequest(s.random)) }

func (s *Soak) newPodRequesting(a request) *operation {
	if len(s.pods) >= mostPods {
		return nil
	}

	s.made++
	name := fmt.Sprintf("p%d", s.made)
	p := &pod{config: Pod{Name: name, UID: "uid-" + name, Annotations: a.pod}, request: a}
	start := s.random.IntN(8) > 0
	d := &operation{action: "create", what: fmt.Sprintf("%s %s, started: %t", name, a, start), judged: true}
	d.may, d.must = a.may(s.file)
	id := ""
	d.do = func(ctx context.Context) error {
		var err error
		if p.id, err = s.site.RunPod(ctx, p.config); err != nil {
			return err
		}
		id, err = s.runContainer(ctx, p, "main", start)
		return err
	}

	d.then = func(error) {
		if p.id != "" {
			s.pods = append(s.pods, p)
		}
		p.note(id, "main", start)
	}

	return d
}

// note adds a created container to the model.
func (p *pod) note(id, name string, started bool) {
	if id == "" {
		return
	}
	in := created
	if started {
		in = running
	}
	p.containers = append(p.containers, &container{pod: p, id: id, name: name, state: in})
	if p.had == nil {
		p.had = map[string]bool{}
	}
	p.had[name] = true
}

// runContainer creates a container, and starts it if `start` is true. It returns an empty ID if it fails. While
// `s.calm` is true, it checks that a container with the name "main" is in its class when it starts.
func (s *Soak) runContainer(ctx context.Context, p *pod, name string, start bool) (id string, err error) {
	id, err = s.site.CreateContainer(ctx, p.id, Container{Name: name, Annotations: p.request.cri, Device: p.request.device})
	if err != nil || !start {
		return id, err
	}
	if err := s.startOrRemove(ctx, id); err != nil {
		return "", err
	}
	if name != "main" || !s.calm || !slices.Contains(s.file.classes(rdt), p.request.classes[rdt]) {
		return id, nil // a container whose class was removed keeps this class, or the class of an update
	}
	return id, s.placed(ctx, id, p.request)
}

// startOrRemove starts a container. If the start fails, startOrRemove removes the container, as the kubelet does before a
// retry. Runtimes do not call a hook for every failed start, but they call one for the removal.
func (s *Soak) startOrRemove(ctx context.Context, id string) error {
	err := s.site.StartContainer(ctx, id)
	if err != nil {
		err = errors.Join(err, s.site.RemoveContainer(ctx, id))
	}
	return err
}

// newContainer adds a container to a pod, or restarts a container that has ended.
func (s *Soak) newContainer() *operation {
	p := s.anyPod()
	if p == nil {
		return nil
	}

	name := pick(s.random, "main", "side", "extra")
	if slices.ContainsFunc(p.containers, func(c *container) bool { return c.name == name && c.state != ended }) {
		return nil
	}

	start, id := s.random.IntN(4) > 0, ""
	d := &operation{action: "create", what: fmt.Sprintf("%s/%s, started: %t", p.config.Name, name, start), judged: name == "main", touches: p}
	d.may, d.must = p.request.may(s.file)
	d.must = d.must && !p.had[name] // a pod keeps a removed class until the pod ends
	d.do = func(ctx context.Context) (err error) {
		id, err = s.runContainer(ctx, p, name, start)
		return err
	}

	d.then = func(error) { p.note(id, name, start) }
	return d
}

// start starts a container that was created some time ago, perhaps while the plugin did not run or had other class files.
func (s *Soak) start() *operation {
	c := s.anyContainer(created)
	if c == nil {
		return nil
	}
	return &operation{action: "start", what: c.String(), touches: c.pod,
		do: func(ctx context.Context) error { return s.startOrRemove(ctx, c.id) },
		then: func(err error) {
			c.state = running
			if err != nil {
				c.pod.remove(c)
			}
		}}
}

func (s *Soak) exit(c *container) *operation {
	return &operation{action: "exit", what: c.String(), touches: c.pod, judged: true,
		do:   func(ctx context.Context) error { return s.site.ExitContainer(ctx, c.id) },
		then: func(error) { c.state = ended }}
}

func (s *Soak) removeContainer() *operation {
	c := s.anyContainer(created, running, ended, ended)
	if c == nil {
		return nil
	}
	return &operation{action: "remove", what: c.String(), touches: c.pod, judged: true,
		do:   func(ctx context.Context) error { return s.site.RemoveContainer(ctx, c.id) },
		then: func(error) { c.pod.remove(c) }}
}

func (s *Soak) endPod() *operation {
	p := s.anyPod()
	if p == nil {
		return nil
	}
	return &operation{action: "remove pod", what: p.config.Name, touches: p, judged: true,
		do:   func(ctx context.Context) error { return s.site.RemovePod(ctx, p.id) },
		then: func(error) { s.removePod(p) }}
}

// crashLoop ends a container several times. Like the kubelet, it creates the successor before it removes the ended
// container.
func (s *Soak) crashLoop(c *container) *operation {
	times := 2 + s.random.IntN(5)
	d := &operation{action: "crash loop", what: fmt.Sprintf("%s, %d times", c, times), touches: c.pod, judged: c.name == "main"}
	d.may, _ = c.pod.request.may(s.file)
	d.do = func(ctx context.Context) error {
		for range times {
			if err := s.site.ExitContainer(ctx, c.id); err != nil {
				return err
			}
			c.state = ended
			id, err := s.runContainer(ctx, c.pod, c.name, true)
			if err = errors.Join(err, s.site.RemoveContainer(ctx, c.id)); id != "" {
				c.state = running
			}
			if c.id, c.changed = id, nil; err != nil {
				return err
			}
		}

		return nil
	}

	d.then = func(error) {
		if c.id == "" {
			c.pod.remove(c)
		}
	}

	return d
}

func (s *Soak) exec(c *container) *operation {
	return &operation{action: "exec", what: c.String(), touches: c.pod, judged: true,
		do: func(ctx context.Context) error { return s.site.Exec(ctx, c.id) }}
}

// execEverywhere starts one more process in every running container. This includes containers whose class has changed
// since their creation.
func (s *Soak) execEverywhere() *operation {
	var all []*container
	for _, p := range s.pods {
		for _, c := range p.containers {
			if c.state == running && !s.busy[p] {
				all = append(all, c)
			}
		}
	}

	return &operation{action: "exec everywhere", what: fmt.Sprint(all), judged: true,
		do: func(ctx context.Context) error {
			var errs []error
			for _, c := range all {
				if err := s.site.Exec(ctx, c.id); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", c, err))
				}
			}
			return errors.Join(errs...)
		}}
}

func (s *Soak) fork(c *container) *operation {
	times := 1 + s.random.IntN(10)
	return &operation{action: "fork", what: fmt.Sprintf("%s, %d times", c, times), touches: c.pod, judged: true,
		do: func(ctx context.Context) error {
			for range times {
				if err := s.site.Fork(ctx, c.id); err != nil {
					return err
				}
			}
			return nil
		}}
}

func (s *Soak) resize(c *container) *operation {
	return &operation{action: "resize", what: c.String(), touches: c.pod, judged: true,
		do: func(ctx context.Context) error { return s.site.Resize(ctx, c.id) }}
}

// update changes the class of a running container for RDT, for block I/O, or for both.
func (s *Soak) update(c *container) *operation {
	message := &qosv1alpha1.UpdateContainerQOSResourcesRequest{PodUid: c.pod.config.UID, Container: c.name}
	d := &operation{action: "update", touches: c.pod, judged: true}
	requests := request{classes: map[string]string{}}
	which := s.random.IntN(4)
	if which > 0 {
		requests.classes[rdt] = pick(s.random, "gold", "gold", "silver", "bronze", "", "platinum")
	}

	if which < 2 {
		requests.classes[blockIO] = pick(s.random, "slow", "heavy", "", "none")
	}

	for resource, class := range requests.classes {
		message.QosResources = append(message.QosResources, &qosv1alpha1.ContainerQOSResource{Name: resource, Class: class})
	}

	// A class that the container already has is not refused, even if it was removed from the class files.
	d.may, _ = requests.may(s.file)
	d.what = fmt.Sprintf("%s to %v", c, requests.classes)
	d.do = func(ctx context.Context) error { return s.change(ctx, message) }
	d.then = func(err error) { c.note(requests.classes, err) }
	return d
}

// note records the result of a change of classes. If the change neither succeeded nor was refused, the container's
// classes are unknown.
func (c *container) note(classes map[string]string, err error) {
	refusals := []string{classFull, unknownClass, unknownResource, unavailable, notRunning}
	switch {
	case err == nil && c.changed == nil:
		c.changed = classes
	case err == nil:
		maps.Copy(c.changed, classes)
	case !slices.Contains(refusals, reasonOf(err)):
		c.changed = nil
	}
}

func (s *Soak) change(ctx context.Context, request *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
	api := s.site.API()
	if api == nil {
		return errNoPlugin
	}
	_, err := api.UpdateContainerQOSResources(ctx, request)
	return err
}

// updateAtTheEnd changes the class of a container while the container ends.
func (s *Soak) updateAtTheEnd(c *container) *operation {
	request := &qosv1alpha1.UpdateContainerQOSResourcesRequest{PodUid: c.pod.config.UID, Container: c.name,
		QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: rdt, Class: "bronze"}, {Name: blockIO, Class: ""}}}
	return &operation{action: "update while it exits", what: c.String(), touches: c.pod, then: func(error) { c.state = ended },
		do: func(ctx context.Context) error {
			exited := make(chan error, 1)
			go func() { exited <- s.site.ExitContainer(ctx, c.id) }()
			err := s.change(ctx, request)
			return errors.Join(<-exited, err)
		}}
}
