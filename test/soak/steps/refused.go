// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"sync"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// newcomers is the number of pods that request a class while a container leaves it.
const newcomers = 4

// refusedChange requests a change of a container's class, and the kernel or the runtime refuses the change. Meanwhile
// other pods request the class that the container would have left.
func (s *Soak) refusedChange(refuse func(during func()) (stop func()), resource, from, to string) *operation {
	c := s.anyIn(resource, from)
	if c == nil {
		return nil
	}

	d := &operation{action: "refused change", what: fmt.Sprintf("%s from %s to %s", c, from, to), touches: c.pod}
	var others []*operation
	for range min(newcomers, mostPods-len(s.pods)) {
		others = append(others, s.newPodRequesting(request{
			pod: map[string]string{ofPod: resource + "=" + from}, classes: map[string]string{resource: from},
		}))
	}

	d.do = func(ctx context.Context) error {
		stop := refuse(func() { doAll(ctx, others) })
		defer stop()
		return s.change(ctx, &qosv1alpha1.UpdateContainerQOSResourcesRequest{PodUid: c.pod.config.UID, Container: c.name,
			QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: resource, Class: to}}})
	}

	d.then = func(err error) {
		c.note(map[string]string{resource: to}, err)
		for _, other := range others {
			other.then(nil)
		}
	}

	return d
}

func doAll(ctx context.Context, operations []*operation) {
	var all sync.WaitGroup
	for _, d := range operations {
		all.Go(func() { _ = d.do(ctx) }) // most are refused, because the class is full
	}
	all.Wait()
}

// alongside adapts Faults.RefuseUpdate, the parameter `refuse`, to the signature of Faults.RefuseWrite. It runs
// `during` concurrently with the refused call.
func alongside(refuse func() (stop func())) func(during func()) (stop func()) {
	return func(during func()) func() {
		stop := refuse()
		var others sync.WaitGroup
		others.Go(during)
		return func() {
			others.Wait()
			stop()
		}
	}
}

// anyIn returns a running container that should be in the given class.
func (s *Soak) anyIn(resource, class string) *container {
	var found []*container
	for _, p := range s.pods {
		for _, c := range p.containers {
			has, changed := c.changed[resource]
			if !changed {
				has = p.request.classes[resource]
			}
			if !s.busy[p] && c.state == running && has == class {
				found = append(found, c)
			}
		}
	}

	return anyOf(s.random, found)
}
