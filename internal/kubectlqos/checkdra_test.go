// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// creates makes the API server answer a dry run of a creation with the object after `change`.
func (r *rig) creates(t *testing.T, resource string, change func(runtime.Object) error) {
	t.Helper()
	r.core.PrependReactor("create", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		if len(create.GetCreateOptions().DryRun) == 0 {
			t.Errorf("%s is created", resource)
		}
		object := create.GetObject().DeepCopyObject()
		return true, object, change(object)
	})
}

// TestCheckSaysWhetherTheClusterAllowsClassesByDRA: the API server drops or refuses the fields of features whose gates
// are off. `class`, `slice` and `claim` do this to a DeviceClass, a ResourceSlice and a ResourceClaim.
func TestCheckSaysWhetherTheClusterAllowsClassesByDRA(t *testing.T) {
	const on = "in the control plane and the kubelets (on by default from Kubernetes 1.36)"
	keep := func(runtime.Object) error { return nil }
	for name, test := range map[string]struct {
		class, slice, claim func(runtime.Object) error
		kubelet, runtime    string
		want                []string
	}{
		"all is on": {keep, keep, keep, "v1.37.2", "containerd://2.3.1", nil},
		"gates are off": {
			func(o runtime.Object) error { o.(*resourcev1.DeviceClass).Spec.ExtendedResourceName = nil; return nil },
			func(o runtime.Object) error {
				device := &o.(*resourcev1.ResourceSlice).Spec.Devices[0]
				device.AllowMultipleAllocations, device.Taints = nil, nil
				return nil
			},
			func(runtime.Object) error {
				return apierrors.NewInvalid(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), "x", nil)
			},
			"v1.36.0", "containerd://v2.4.0",
			[]string{
				"requests by limits: is off; turn on the feature gate DRAExtendedResource " + on, "capacities: is off; turn on the feature gate DRAConsumableCapacity " + on,
				"taints of removed classes: is off; turn on the feature gate DRADeviceTaints " + on,
				"second choices in claims: is off; turn on the feature gate DRAPrioritizedList " + on,
			},
		},
		"the API is missing": {
			func(runtime.Object) error {
				return apierrors.NewGenericServerResponse(404, "post", resourcev1.Resource("deviceclasses"), "", "", 0, true)
			}, keep, keep, "v1.37.2", "containerd://2.3.1",
			[]string{"resource.k8s.io/v1: is not served; upgrade the control plane to Kubernetes 1.36"},
		},
		"a node is too old": {
			keep, keep, keep, "v1.35.4", "containerd://2.2.1",
			[]string{
				"node n1: has the kubelet v1.35.4; upgrade it to 1.36",
				"node n1: has the container runtime containerd://2.2.1, which does not pass CDI devices to the plugin; use containerd 2.3 or later, or device plugins on this node",
			},
		},
		"another runtime": {
			keep, keep, keep, "v1.37.2", "cri-o://1.37.0",
			[]string{"node n1: has the container runtime cri-o://1.37.0, which does not pass CDI devices to the plugin; use containerd 2.3 or later, or device plugins on this node"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.creates(t, "deviceclasses", test.class)
			r.creates(t, "resourceslices", test.slice)
			r.creates(t, "resourceclaims", test.claim)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: test.kubelet, ContainerRuntimeVersion: test.runtime}
			r.put(t, node)

			got, code := r.run(t, "check", "--dra"), 0
			want := "the API server, the kubelets and the container runtimes allow classes by DRA\n"
			if len(test.want) > 0 {
				code, want = program.ExitProblems, strings.Join(test.want, "\n")+"\n"
			}
			if got.Code != code || got.Out != want {
				t.Errorf("exit code %d, output:\n%s%s\nwant %d:\n%s", got.Code, got.Out, got.Errors, code, want)
			}
		})
	}
}
