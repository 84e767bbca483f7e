// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// deviceClaimsAreLimited creates ResourceClaims and templates of them in a namespace with a list of allowed classes and with maxima, as a user and
// as a scheduler, which creates the claims for the limits of pods.
func deviceClaimsAreLimited(t *testing.T, n *node) {
	const namespace = "limited-claims"
	n.namespace(t, namespace, `{apiVersion: v1, kind: ResourceQuota, spec: {}, metadata: {name: classes, annotations: {
  qos.noderesource.dev/allowed-classes: "rdt=gold,rdt=bronze"}}}
---
{apiVersion: qos.noderesource.dev/v1alpha1, kind: QOSLimitRange, metadata: {name: maxima}, spec: {limits: [{type: Container, qosResources: [
  {name: k8s.io/rdt, max: [{name: gold, capacity: 1}]}, {name: k8s.io/blockio, max: [{name: gold, capacity: 0}]}]}]}}`)
	n.kubectl(t, "create", "clusterrolebinding", "tenant-edits", "--clusterrole=edit", "--user=tenant")
	t.Cleanup(func() { n.kubectl(t, "delete", "clusterrolebinding", "tenant-edits") })

	claim := func(kind, annotation, request string) string {
		spec := fmt.Sprintf("{devices: {requests: [{name: class, %s}]}}", request)
		if kind == "ResourceClaimTemplate" {
			spec = "{spec: " + spec + "}"
		}
		return fmt.Sprintf(`{apiVersion: resource.k8s.io/v1, kind: %s, metadata: {name: new, annotations: {%s}}, spec: %s}`, kind, annotation, spec)
	}
	create := func(manifest string, flags ...string) (string, error) {
		return n.tryWith(manifest, append([]string{"-n", namespace, "create", "--dry-run=server", "-f", "-"}, flags...)...)
	}
	of := func(class string) string { return "exactly: {deviceClassName: " + class + "}" }

	const notAllowed = "ResourceQuota classes does not allow DeviceClass rdt.silver; the allowed classes of its resources are rdt=gold, rdt=bronze"
	const limited = "QOSLimitRange maxima allows at most 1 of qos.noderesource.dev/rdt.gold in a pod"
	until(t, "the policies act", func() (bool, string) {
		silver, _ := create(claim("ResourceClaim", "", of("rdt.silver")))
		gold, _ := create(claim("ResourceClaim", "", of("rdt.gold")))
		return strings.Contains(silver, notAllowed) && strings.Contains(gold, limited), silver + gold
	})
	// The scheduler marks the claims that it creates for extended resources in the limits of pods. Only these claims may
	// be for a class with a maximum, because other policies count the limits of pods, and nothing counts claims.
	const forLimits = "resource.kubernetes.io/extended-resource-claim: 'true'"
	tenant, scheduler := "--as=tenant", "--as=system:kube-scheduler"
	for name, test := range map[string]struct{ manifest, as, want string }{
		"an allowed class":                              {claim("ResourceClaim", "", of("rdt.bronze")), tenant, ""},
		"a class of another driver":                     {claim("ResourceClaimTemplate", "", of("gpu")), tenant, ""},
		"a template of a class that is not in the list": {claim("ResourceClaimTemplate", "", of("rdt.silver")), tenant, notAllowed},
		"an alternative that is not in the list": {
			claim("ResourceClaimTemplate", "", "firstAvailable: [{name: a, deviceClassName: rdt.bronze}, {name: b, deviceClassName: rdt.silver}]"), tenant,
			"request class/b: " + notAllowed,
		},
		"a class with a maximum":                                                       {claim("ResourceClaimTemplate", "", of("rdt.gold")), tenant, limited},
		"a class with the maximum 0":                                                   {claim("ResourceClaim", "", of("blockio.gold")), tenant, "allows at most 0 of qos.noderesource.dev/blockio.gold in a pod"},
		"a tenant marks a claim as one for limits":                                     {claim("ResourceClaim", forLimits, of("rdt.gold")), tenant, limited},
		"the scheduler creates a claim for limits":                                     {claim("ResourceClaim", forLimits, of("rdt.gold")), scheduler, ""},
		"the scheduler creates a claim for limits, of a class that is not in the list": {claim("ResourceClaim", forLimits, of("rdt.silver")), scheduler, notAllowed},
		"the scheduler creates a claim without the mark":                               {claim("ResourceClaim", "", of("rdt.gold")), scheduler, limited},
		"two devices of a class":                                                       {claim("ResourceClaim", "", "exactly: {deviceClassName: rdt.bronze, count: 2}"), tenant, "request class: count 2 of DeviceClass rdt.bronze is not possible"},
		"all devices of a class": {
			claim("ResourceClaimTemplate", "", "firstAvailable: [{name: a, deviceClassName: rdt.bronze}, {name: b, deviceClassName: rdt.bronze, allocationMode: All}]"),
			tenant, "request class/b: allocationMode All of DeviceClass rdt.bronze is not possible",
		},
		"two devices of another driver": {claim("ResourceClaim", "", "exactly: {deviceClassName: gpu, count: 2}"), tenant, ""},
	} {
		output, err := create(test.manifest, test.as)
		if (err == nil) != (test.want == "") || !strings.Contains(output, test.want) {
			t.Errorf("%s: %v: %s, want %q", name, err, output, test.want)
		}
	}
	n.noWarnings(t, "qos-allowed-classes-of-claims", "qos-max-classes-of-claims", "qos-check-units", "qos-check-units-of-claims")
}
