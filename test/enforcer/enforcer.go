// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package enforcer is an example of a vendor's program: an NRI plugin that enforces the classes of vendor.example/xyz-qos. It imports only NRI
// and the client of the node API, and nothing of qos-nri-plugin itself. docs/vendors.md describes it.
package enforcer

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

const (
	resource = "vendor.example/xyz-qos"
	// record is the annotation in which qos-nri-plugin lists the classes of a container.
	record = "assigned.qos.noderesource.dev"
)

// Plugin enforces a class by writing its name into a file of the container. A real program would configure a device.
type Plugin struct {
	Node qosv1alpha1.NodeQOSClient
	// Dir has one file for each container with a class.
	Dir string
}

// Run connects to the runtime and enforces classes until `ctx` ends. The plugin has a higher NRI index than
// qos-nri-plugin, so the runtime calls qos-nri-plugin first.
func (p *Plugin) Run(ctx context.Context, nriSocket string) error {
	s, err := stub.New(p, stub.WithPluginName("xyz-enforcer"), stub.WithPluginIdx("20"), stub.WithSocketPath(nriSocket))
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// Synchronize enforces the classes of the containers that run already.
func (p *Plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	uids := map[string]string{}
	for _, pod := range pods {
		uids[pod.GetId()] = pod.GetUid()
	}
	for _, ctr := range containers {
		p.enforce(ctx, uids[ctr.GetPodSandboxId()], ctr)
	}
	return nil, nil
}

// StartContainer enforces the class of a container before its first instruction. To refuse the container instead of reporting the problem,
// return the error. CRI-O only logs it and starts the container, so a program for CRI-O must also end the processes of the container, or
// refuse the container in CreateContainer.
func (p *Plugin) StartContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) error {
	p.enforce(ctx, pod.GetUid(), ctr)
	return nil
}

func (p *Plugin) enforce(ctx context.Context, podUID string, ctr *api.Container) {
	class := classOf(ctr)
	if class == "" {
		return
	}

	report := &qosv1alpha1.ReportEnforcementRequest{PodUid: podUID, Container: ctr.GetName(), Name: resource, Class: class}
	if err := os.WriteFile(filepath.Join(p.Dir, ctr.GetId()), []byte(class), 0o600); err != nil {
		report.Problem = err.Error()
	}
	_, _ = p.Node.ReportEnforcement(ctx, report) // a program for production would retry, also on RESOURCE_EXHAUSTED
}

// classOf reads the class of a container from the record of qos-nri-plugin.
func classOf(ctr *api.Container) string {
	var assignments []struct{ Resource, Class string }
	if json.Unmarshal([]byte(ctr.GetAnnotations()[record]), &assignments) != nil {
		return ""
	}
	for _, a := range assignments {
		if a.Resource == resource {
			return a.Class
		}
	}
	return ""
}
