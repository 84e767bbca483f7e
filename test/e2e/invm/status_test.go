// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// The resources of classFile for containers.
const rdt, blockio = "k8s.io/rdt", "k8s.io/blockio"

func (n *node) status(t testing.TB) *qos.StatusResponse {
	t.Helper()
	response, err := n.api(t).Status(requestContext(t), &qos.StatusRequest{})
	must(t, err)
	return response
}

// resource returns what the plugin reports of a resource of containers or pods, or nil if it does not offer the resource.
func (n *node) resource(t testing.TB, name string) *qos.QOSResourceInfo {
	t.Helper()
	all := n.status(t).GetResources()
	for _, r := range slices.Concat(all.GetContainerQosResources(), all.GetPodQosResources()) {
		if r.GetName() == name {
			return r
		}
	}
	return nil
}

// condition returns a condition of a resource, or nil if it has none.
func (n *node) condition(t testing.TB, resource, kind string) *qos.Condition {
	t.Helper()
	for _, c := range n.resource(t, resource).GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

// class returns what the plugin reports of a class, or nil if it does not report the class.
func (n *node) class(t testing.TB, resource, name string) *qos.QOSResourceClassInfo {
	t.Helper()
	for _, c := range n.resource(t, resource).GetClasses() {
		if c.GetName() == name {
			return c
		}
	}
	return nil
}

// degraded returns an error unless a class is degraded for this reason or, if the reason is empty, not degraded.
func (n *node) degraded(t testing.TB, resource, name, reason string) error {
	t.Helper()
	class := n.class(t, resource, name)
	if class == nil || !strings.Contains(class.GetDegraded(), reason) || (reason == "") != (class.GetDegraded() == "") {
		return fmt.Errorf("%v, want it degraded: %q", class, reason)
	}
	return nil
}

// offer adds resources to the class file until the end of the test, and waits until a class of them is offered.
func (n *node) offer(t testing.TB, resources, resource, class string) {
	t.Helper()
	useClassFile(t, classFile+resources)
	eventually(t, "the class files are applied", func() error {
		if c := n.class(t, resource, class); c == nil || c.GetDraining() {
			return errors.New("not yet")
		}
		return nil
	})
}
