// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/stage"
)

// play runs and prints the demo's steps. After the first error, it runs no further steps.
type play struct {
	*stage.Stage

	classFile string
	ctx       context.Context
	out       io.Writer
	err       error
	// ids has the IDs of containers, by pod and name.
	ids  map[string]string
	uids map[string]string
	pods []string
}

func (p *play) say(format string, args ...any) {
	_, err := fmt.Fprintf(p.out, format, args...)
	p.keep(err)
}

func (p *play) title(text string) { p.say("\n=== %s\n\n", text) }

func (p *play) keep(err error) {
	if p.err == nil {
		p.err = err
	}
}

// run runs a pod whose containers request classes by annotation, or request none.
func (p *play) run(name string, containers ...string) error {
	config := nriruntime.PodConfig{Name: name, Annotations: map[string]string{}}
	var names []string
	for _, c := range containers {
		container, request, asks := strings.Cut(c, ": ")
		names = append(names, container)
		if asks {
			config.Annotations["container.qos.noderesource.dev/"+container] = request
		}
	}

	pod, err := p.Runtime.RunPod(p.ctx, config)
	if err != nil {
		return err
	}

	p.pods = append(p.pods, pod)
	for _, container := range names {
		id, err := p.Runtime.CreateContainer(p.ctx, pod, nriruntime.ContainerConfig{Name: container})
		if err != nil {
			return err
		}
		p.ids[name+"/"+container] = id
		if err := p.Runtime.StartContainer(p.ctx, id); err != nil {
			return err
		}
	}

	return nil
}

func (p *play) mustRun(name string, containers ...string) {
	for _, c := range containers {
		p.say("pod %-8s container %s\n", name, c)
	}
	if p.err == nil {
		p.keep(p.run(name, containers...))
	}
}

// refuse runs a pod that must be refused, and prints the error.
func (p *play) refuse(name, container string) {
	p.say("pod %-8s container %s\n", name, container)
	if p.err != nil {
		return
	}
	err := p.run(name, container)
	if err == nil {
		p.keep(fmt.Errorf("pod %s was not refused", name))
		return
	}
	_, reason, _ := strings.Cut(err.Error(), "desc = ")
	p.say("  CreateContainerError: … %s\n\n", reason)
}

func (p *play) status() {
	if p.err != nil {
		return
	}
	status, err := p.API.Status(p.ctx, &qosv1alpha1.StatusRequest{}, grpc.WaitForReady(true))
	p.keep(err)
	p.say("%s", shell.Status(status))
}

func (p *play) assignments() {
	if p.err != nil {
		return
	}
	list, err := p.API.ListAssignments(p.ctx, &qosv1alpha1.ListAssignmentsRequest{})
	p.keep(err)
	p.say("%s", shell.Assignments(list))
	p.uids = map[string]string{}
	for _, pod := range list.GetPods() {
		p.uids[pod.GetName()] = pod.GetUid()
	}
}

// change changes the class of a running container.
func (p *play) change(pod, container, resource, class string) {
	p.say("qos-nri-plugin update default/%s %s %s=%s\n", pod, container, resource, class)
	if p.err != nil {
		return
	}
	_, err := p.API.UpdateContainerQOSResources(p.ctx, &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: p.uids[pod], Container: container,
		QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: resource, Class: class}},
	})
	p.keep(err)
}

// hold checks that the plugin's reports, the runtime and the kernel agree.
func (p *play) hold() {
	if p.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	machine := invariant.Machine{API: p.API, Host: p.Host, Live: invariant.LiveIn(p.Runtime)}
	for _, violation := range machine.Wait(ctx) {
		p.keep(errors.New(violation))
	}
}

// over ends all pods.
func (p *play) over() error {
	errs := []error{p.err}
	for _, pod := range p.pods {
		errs = append(errs, p.Runtime.RemovePod(context.WithoutCancel(p.ctx), pod))
	}
	return errors.Join(errs...)
}
