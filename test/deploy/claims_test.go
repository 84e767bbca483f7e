// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// requesting returns the spec of a claim with the request "class" for a DeviceClass. If there are alternatives, the
// claim also has the request "second" for one of them. The alternatives are called second/a, second/b and so on.
func requesting(exactly string, alternatives ...string) resourcev1.ResourceClaimSpec {
	requests := []resourcev1.DeviceRequest{{Name: "class", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: exactly}}}
	if len(alternatives) > 0 {
		second := resourcev1.DeviceRequest{Name: "second"}
		for i, class := range alternatives {
			second.FirstAvailable = append(second.FirstAvailable, resourcev1.DeviceSubRequest{Name: string(rune('a' + i)), DeviceClassName: class})
		}
		requests = append(requests, second)
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}
}

func deviceClass(t *testing.T, extended string) string {
	t.Helper()
	name, err := classes.DeviceClass(extended)
	must(t, err)
	return name
}

// refusalsOfClaim returns the messages with which a policy refuses a claim and a template of the claim.
func (p *policy) refusalsOfClaim(t *testing.T, params runtime.Object, spec resourcev1.ResourceClaimSpec) (messages []string) {
	t.Helper()
	for kind, object := range map[string]runtime.Object{
		"ResourceClaim":         &resourcev1.ResourceClaim{Spec: spec},
		"ResourceClaimTemplate": &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}},
	} {
		gvk := resourcev1.SchemeGroupVersion.WithKind(kind)
		resource := resourcev1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
		versioned := &admission.VersionedAttributes{VersionedKind: gvk, VersionedObject: admission.NewLazyObject(object)}
		versioned.Attributes = admission.NewAttributesRecord(object, nil, gvk, "default", "c", resource, "", admission.Create, nil, false,
			&user.DefaultInfo{Name: "tenant"})
		messages = append(messages, p.refusalIn(t, p.evaluateRequest(t, params, versioned, p.rules)))
	}
	return messages
}

// TestAQuotaListsTheAllowedClassesOfClaims checks the policy qos-allowed-classes-of-claims with the lists of allowed
// classes that pods have. The names of DeviceClasses have no capital letters and underscores. In their place, the name
// has other characters, and a digest at its end.
func TestAQuotaListsTheAllowedClassesOfClaims(t *testing.T) {
	refused := func(request, class, list string) string {
		return "request " + request + ": ResourceQuota classes does not allow DeviceClass " + class + "; the allowed classes of its resources are " + list
	}
	const unreadable = "request class: ResourceQuota classes does not allow DeviceClass rdt.gold, because rdt:gold in its annotation " +
		"qos.noderesource.dev/allowed-classes is not of the form resource=class"

	// The first class of requesting is in the request "class". The others are the alternatives second/a and second/b.
	for _, c := range []struct {
		name, allowed string
		spec          resourcev1.ResourceClaimSpec
		want          string
	}{
		{"a class that it names", "rdt=gold", requesting("rdt.gold"), ""},
		{"a class that it does not name", "k8s.io/rdt=gold", requesting("rdt.silver"), refused("class", "rdt.silver", "k8s.io/rdt=gold")},
		{"an alternative that it does not name", "rdt=gold", requesting("rdt.gold", "rdt.gold", "rdt.silver"), refused("second/b", "rdt.silver", "rdt=gold")},
		{"the list allows no class of the resource", "rdt=", requesting("rdt.gold"), refused("class", "rdt.gold", "rdt=")},
		{"resources that are not in the list", "rdt=gold", requesting("blockio.slow", "gpu.example"), ""},
		{"a vendor's class", "vendor.example/net=fast", requesting("vendor.example.net.fast", "vendor.example.net.slow"),
			refused("second/a", "vendor.example.net.slow", "vendor.example/net=fast")},
		{"a class with capital letters", "rdt=gold,k8s.io/rdt=Fast_1", requesting(deviceClass(t, "qos.noderesource.dev/rdt.Fast_1")), ""},
		{"a resource with capital letters", "vendor.example/Big_net=fast",
			requesting(deviceClass(t, "vendor.example/Big_net.fast"), deviceClass(t, "vendor.example/Big_net.slow")),
			refused("second/a", deviceClass(t, "vendor.example/Big_net.slow"), "vendor.example/Big_net=fast")},
		{"a DeviceClass without the digest of the allowed class", "rdt=Fast_1", requesting("rdt.fast-1"), refused("class", "rdt.fast-1", "rdt=Fast_1")},
		{"a DeviceClass with another ending than the digest", "rdt=Fast_1", requesting("rdt.fast-1-ondemand"), refused("class", "rdt.fast-1-ondemand", "rdt=Fast_1")},
		{"a resource of the project's domain", "qos.noderesource.dev/pod-blockio=slow", requesting("pod-blockio.slow", "pod-blockio.fast"),
			refused("second/a", "pod-blockio.fast", "qos.noderesource.dev/pod-blockio=slow")},
		{"a class whose name begins with that of an allowed one", "rdt=gold", requesting("rdt.gold-2"), refused("class", "rdt.gold-2", "rdt=gold")},
		{"an entry with a mistake", "rdt:gold", requesting("gpu.example", "rdt.gold"), strings.Replace(unreadable, "class:", "second/a:", 1)},
		{"an entry with a mistake beside a correct one", "rdt=gold,rdt:gold", requesting("rdt.gold"), unreadable},
		{"a mistake, and a claim for another driver", "rdt:gold", requesting("gpu.example"), ""},
		{"a quota without a list", "", requesting("rdt.silver"), ""},
	} {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "classes"}}
		quota.Annotations = map[string]string{"qos.noderesource.dev/allowed-classes": c.allowed}
		for _, got := range policyNamed(t, "qos-allowed-classes-of-claims").refusalsOfClaim(t, quota, c.spec) {
			if got != c.want {
				t.Errorf("%s: the refusal is %q, want %q", c.name, got, c.want)
			}
		}
	}
}

// TestARequestOfAClaimIsForOneDevice checks the policy qos-check-units-of-claims, with each row as the request "class"
// and as the alternative second/b.
func TestARequestOfAClaimIsForOneDevice(t *testing.T) {
	const all, exact = resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount
	const reason = " is not possible, since a container has a class or does not; write "
	for _, c := range []struct {
		name, class string
		mode        resourcev1.DeviceAllocationMode
		count       int64
		want        string
	}{
		{"one device", "rdt.gold", exact, 1, ""},
		{"mode and count are not set", "rdt.gold", "", 0, ""},
		{"two devices", "rdt.gold", exact, 2, "count 2 of DeviceClass rdt.gold" + reason + "count 1"},
		{"all devices", "blockio.slow", all, 0, "allocationMode All of DeviceClass blockio.slow" + reason + "allocationMode ExactCount"},
		{"a class with a digest", deviceClass(t, "qos.noderesource.dev/rdt.Fast_1"), exact, 3,
			"count 3 of DeviceClass " + deviceClass(t, "qos.noderesource.dev/rdt.Fast_1") + reason + "count 1"},
		{"a class of pods", "pod-blockio.slow", exact, 2, "count 2 of DeviceClass pod-blockio.slow" + reason + "count 1"},
		{"two devices of another driver", "gpu.example", exact, 2, ""},
		{"all devices of a DeviceClass whose name only begins like a resource", "rdtx.gold", all, 0, ""},
	} {
		spec := requesting(c.class)
		spec.Devices.Requests[0].Exactly.AllocationMode, spec.Devices.Requests[0].Exactly.Count = c.mode, c.count
		alternatives := requesting("gpu.example", "gpu.example", c.class)
		second := &alternatives.Devices.Requests[1].FirstAvailable[1]
		second.AllocationMode, second.Count = c.mode, c.count
		for request, spec := range map[string]resourcev1.ResourceClaimSpec{"class": spec, "second/b": alternatives} {
			want := c.want
			if want != "" {
				want = "request " + request + ": " + want
			}
			for _, got := range policyNamed(t, "qos-check-units-of-claims").refusalsOfClaim(t, nil, spec) {
				if got != want {
					t.Errorf("%s: the refusal is %q, want %q", c.name, got, want)
				}
			}
		}
	}
}

// TestAClaimCannotRequestAClassWithAMaximum checks the policy qos-max-classes-of-claims.
func TestAClaimCannotRequestAClassWithAMaximum(t *testing.T) {
	limits := &nodeqosv1alpha1.QOSLimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}}
	limits.Spec.Limits = []nodeqosv1alpha1.QOSLimitRangeItem{
		{Type: "Container", QOSResources: []nodeqosv1alpha1.LimitQOSResource{
			{Name: "k8s.io/rdt", Default: "bronze", Max: []nodeqosv1alpha1.QOSResourceClassLimit{{Name: "gold", Capacity: 1}, {Name: "exclusive"}, {Name: "Fast_1"}}},
			{Name: "blockio", Default: "slow"},
		}},
		{Type: "Pod", QOSResources: []nodeqosv1alpha1.LimitQOSResource{
			{Name: "vendor.example/net", Max: []nodeqosv1alpha1.QOSResourceClassLimit{{Name: "fast"}}},
		}},
	}
	params, err := runtime.DefaultUnstructuredConverter.ToUnstructured(limits)
	must(t, err)

	// A class without a capacity has the maximum 0. The advice in `instead` is missing then, because the limits of a container cannot request
	// the class either.
	const allows, instead = "QOSLimitRange limits allows at most ", " in a pod, and claims are not counted; request it in the limits of the container"
	// The first class of requesting is in the request "class". The others are the alternatives second/a and second/b.
	for _, c := range []struct {
		name string
		spec resourcev1.ResourceClaimSpec
		want string
	}{
		{"a class with a maximum", requesting("rdt.gold"), "request class: " + allows + "1 of qos.noderesource.dev/rdt.gold" + instead},
		{"an alternative with the maximum 0", requesting("rdt.silver", "rdt.silver", "rdt.exclusive"), "request second/b: " + allows + "0 of qos.noderesource.dev/rdt.exclusive in a pod"},
		{"a class with a capital letter", requesting(deviceClass(t, "qos.noderesource.dev/rdt.Fast_1")), "request class: " + allows + "0 of qos.noderesource.dev/rdt.Fast_1 in a pod"},
		{"a class of pod scope", requesting("vendor.example.net.fast"), "request class: " + allows + "0 of vendor.example/net.fast in a pod"},
		{"a class without a maximum", requesting("rdt.silver", "rdt.gold-2", "blockio.slow"), ""},
		{"a class of another driver", requesting("gpu.example"), ""},
	} {
		for _, got := range policyNamed(t, "qos-max-classes-of-claims").refusalsOfClaim(t, &unstructured.Unstructured{Object: params}, c.spec) {
			if got != c.want {
				t.Errorf("%s: the refusal is %q, want %q", c.name, got, c.want)
			}
		}
	}
}
