// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// TestDRAIsASeparateKustomization checks that the driver takes the place of the device plugins, and which rights and which parts of the
// node it gets.
func TestDRAIsASeparateKustomization(t *testing.T) {
	found, usual := renderAt(t, "deploy/kubernetes-dra"), render(t)
	for _, c := range found.containers(t) {
		if c.Name == "shim" || slices.Contains(c.Args, "--publish=device-plugin") {
			t.Errorf("container %s offers the classes also by device plugins", c.Name)
		}
	}

	want := usual.rights()
	want["resource.k8s.io/resourceslices"] = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	want["resource.k8s.io/resourceclaims"] = []string{"get"}
	want["resource.k8s.io/resourceclaims/status"] = []string{"patch"}
	want["resource.k8s.io/resourceclaims/driver"] = []string{"associated-node:patch"}
	rights := found.rights()
	for name := range rights {
		slices.Sort(rights[name])
		rights[name] = slices.Compact(rights[name]) // the publisher and the driver both read their Node
	}
	for name := range want {
		slices.Sort(want[name])
	}
	if diff := cmp.Diff(want, rights); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}

	driver := found.container(t, "driver")
	mounts := map[string]string{
		"/run/qos-nri-plugin/read":                      "ro /run/qos-nri-plugin/read",
		"/var/lib/kubelet/plugins/qos.noderesource.dev": "rw /var/lib/kubelet/plugins/qos.noderesource.dev",
		"/var/lib/kubelet/plugins_registry":             "rw /var/lib/kubelet/plugins_registry",
		"/var/run/cdi":                                  "rw /var/run/cdi",
	}
	if diff := cmp.Diff(mounts, driver.hostMounts()); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	s := driver.SecurityContext
	if driver.pod.HostPID || driver.pod.HostNetwork || *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || len(s.Capabilities.Add) > 0 {
		t.Errorf("the driver has more privileges than it needs: %+v", s)
	}

	// The program knows the flags in the manifest.
	program := child.Build(t, root, strings.TrimPrefix(driver.Command[0], "/"))
	out, err := child.Command(t, program, append(slices.Clone(driver.Args), "--help")...).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestTheDRADriverIsConfinedToItsNode sends writes of ResourceSlices and of the status of claims. Each case says what
// the user `who` does.
func TestTheDRADriverIsConfinedToItsNode(t *testing.T) {
	found := renderAt(t, "deploy/kubernetes-dra")
	at := slices.IndexFunc(found.policies, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == "qos-confine-dra-driver" })
	if at < 0 || len(found.policies) != len(found.policyBindings) {
		t.Fatalf("policies %v, bindings %v", found.policies, found.policyBindings)
	}
	c := confinementOf(t, found.policies[at])
	driver := &user.DefaultInfo{Name: "system:serviceaccount:qos-system:qos-dra-driver", Extra: map[string][]string{nodeNameClaim: {"node-1"}}}

	slice := func(node, pool, name string) *resourcev1.ResourceSlice {
		s := &resourcev1.ResourceSlice{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		s.Spec.Driver, s.Spec.Pool.Name = name, pool
		if node != "" {
			s.Spec.NodeName = &node
		}
		return s
	}
	own, others := slice("node-1", "node-1", "qos.noderesource.dev"), slice("node-2", "node-2", "qos.noderesource.dev")
	claim := func(change func(s *resourcev1.ResourceClaimStatus)) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		c.Status.Allocation = &resourcev1.AllocationResult{}
		c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "gpu.example", Pool: "gpus", Device: "gpu-0"}}
		change(&c.Status)
		return c
	}
	reports := func(driver, pool string) func(s *resourcev1.ResourceClaimStatus) {
		return func(s *resourcev1.ResourceClaimStatus) {
			s.Devices = append(s.Devices, resourcev1.AllocatedDeviceStatus{Driver: driver, Pool: pool, Device: "rdt-gold"})
		}
	}
	usual := claim(func(*resourcev1.ResourceClaimStatus) {})
	const notOfDevice = "the driver may change only the status of its own devices of its node in a claim"
	status := func(change func(s *resourcev1.ResourceClaimStatus)) request {
		return request{"resourceclaims", "status", usual, claim(change)}
	}
	const notOfNode, notOfDriver = "the ResourceSlice is not of the node of the driver", "the ResourceSlice is of another driver"
	for name, test := range map[string]struct {
		who  *user.DefaultInfo
		r    request
		want []string
	}{
		"creates its slice":                  {driver, request{"resourceslices", "", nil, own}, nil},
		"updates its slice":                  {driver, request{"resourceslices", "", own, own}, nil},
		"deletes its slice":                  {driver, request{"resourceslices", "", own, nil}, nil},
		"creates a slice of another node":    {driver, request{"resourceslices", "", nil, others}, []string{notOfNode}},
		"takes over another node's slice":    {driver, request{"resourceslices", "", others, own}, []string{notOfNode}},
		"deletes another node's slice":       {driver, request{"resourceslices", "", others, nil}, []string{notOfNode}},
		"creates a slice of all nodes":       {driver, request{"resourceslices", "", nil, slice("", "node-1", "qos.noderesource.dev")}, []string{notOfNode}},
		"joins the pool of another node":     {driver, request{"resourceslices", "", nil, slice("node-1", "node-2", "qos.noderesource.dev")}, []string{notOfNode}},
		"offers devices of another driver":   {driver, request{"resourceslices", "", nil, slice("node-1", "node-1", "gpu.example")}, []string{notOfDriver}},
		"reports on its device":              {driver, status(reports("qos.noderesource.dev", "node-1")), nil},
		"reports on another node's device":   {driver, status(reports("qos.noderesource.dev", "node-2")), []string{notOfDevice}},
		"reports on another driver's device": {driver, status(reports("gpu.example", "node-1")), []string{notOfDevice}},
		"removes another driver's report":    {driver, status(func(s *resourcev1.ResourceClaimStatus) { s.Devices = nil }), []string{notOfDevice}},
		"deallocates a claim":                {driver, status(func(s *resourcev1.ResourceClaimStatus) { s.Allocation = nil }), []string{notOfDevice}},
		"reserves a claim": {driver, status(func(s *resourcev1.ResourceClaimStatus) {
			s.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "mine"}}
		}), []string{notOfDevice}},
		"has a token without a node": {
			&user.DefaultInfo{Name: driver.Name}, request{"resourceslices", "", nil, own},
			[]string{"the token of this request does not name a node; it must be the token of a pod, from Kubernetes 1.30 or later", notOfNode},
		},
		"is somebody else": {&user.DefaultInfo{Name: "system:node:node-2"}, request{"resourceslices", "", nil, others}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, c.refusals(t, test.who, test.r)); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}
