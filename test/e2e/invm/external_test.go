// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

const (
	xyzQoS, netQoS    = "vendor.example/xyz-qos", "vendor.example/net"
	externalResources = `
- name: ` + xyzQoS + `
  defaultClass: low
  classes: [{name: high, capacity: 1}, {name: low}]
  external: {}
- name: ` + netQoS + `
  scope: pod
  classes: [{name: fast, capacity: 1}, {name: slow}]
  external: {}
`
)

// externalClasses: classes that another program enforces are assigned, counted, refused, defaulted and drained like all others.
func externalClasses(t *testing.T, n *node) {
	n.offer(t, externalResources, xyzQoS, "high")
	p := n.runPod(t, "external", map[string]string{podKey: netQoS + "=fast", keyOf("first"): xyzQoS + "=high", keyOf("second"): xyzQoS + "=high"})
	first := p.run(t, spec{name: "first"})
	n.wantAssignment(t, p, "", &qos.Assignment{Name: netQoS, Class: "fast", Source: qos.Source_SOURCE_POD, RequestedBy: podKey})
	high := &qos.Assignment{Name: xyzQoS, Class: "high", Source: qos.Source_SOURCE_CONTAINER, RequestedBy: keyOf("first")}
	n.wantAssignment(t, p, "first", high)
	p.run(t, spec{name: "asks-nothing"})
	n.wantAssignment(t, p, "asks-nothing", &qos.Assignment{Name: xyzQoS, Class: "low", Source: qos.Source_SOURCE_DEFAULT})

	_, err := p.create(t, spec{name: "second"})
	wantRefusal(t, err, n.kind.containerRefused+`pod default/external container second: class "high" of vendor.example/xyz-qos is full: 1 of 1 in use, `+
		`all by this pod itself, which requests more; available: low`)
	_, err = n.tryPod(t, "external-full", map[string]string{podKey: netQoS + "=fast"})
	wantRefusal(t, err, n.kind.podRefused+`pod default/external-full: class "fast" of vendor.example/net is full: 1 of 1 in use; available: slow`)

	writeClassFile(t, classFile+strings.Replace(externalResources, "{name: high, capacity: 1}, ", "", 1))
	eventually(t, "the removed class drains", func() error {
		if !n.class(t, xyzQoS, "high").GetDraining() {
			return errors.New("not yet")
		}
		return nil
	})
	n.wantAssignment(t, p, "first", high)
	first.remove(t)
	_, err = n.runtime.StopPodSandbox(requestContext(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	must(t, err)
}
