// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"path/filepath"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// root is the checkout.
const root = "../.."

// namespace is the namespace of all namespaced objects.
const namespace = "qos-system"

// installed are the rendered objects of a kustomization.
type installed struct {
	objects     []runtime.Object
	daemons     []appsv1.DaemonSet
	deployments []*appsv1.Deployment
	services    []*corev1.Service
	config      corev1.ConfigMap
	network     networkingv1.NetworkPolicy
	roles       []rbacv1.ClusterRole
	// bindings bind the roles.
	bindings       []rbacv1.ClusterRoleBinding
	policies       []*admissionv1.ValidatingAdmissionPolicy
	policyBindings []*admissionv1.ValidatingAdmissionPolicyBinding
}

// render renders what is installed by default.
func render(t *testing.T) *installed {
	t.Helper()
	return renderAt(t, "deploy/kubernetes")
}

// renderAt renders like "kubectl apply -k", and rejects unknown and duplicate fields like the API server's strict validation.
func renderAt(t *testing.T, dir string) *installed {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionv1.AddToScheme, appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
		rbacv1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		must(t, add(scheme))
	}

	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	found := &installed{}
	for _, resource := range kustomized(t, dir) {
		data, err := resource.AsYAML()
		must(t, err)
		object, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", resource.CurId(), err)
		}
		found.add(object)
	}

	return found
}

// kustomized returns the objects of a kustomization.
func kustomized(t *testing.T, dir string) []*resource.Resource {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, dir))
	must(t, err)
	return resources.Resources()
}

func (i *installed) add(object runtime.Object) {
	i.objects = append(i.objects, object)
	switch o := object.(type) {
	case *appsv1.DaemonSet:
		i.daemons = append(i.daemons, *o)
	case *appsv1.Deployment:
		i.deployments = append(i.deployments, o)
	case *corev1.Service:
		i.services = append(i.services, o)
	case *corev1.ConfigMap:
		i.config = *o
	case *networkingv1.NetworkPolicy:
		i.network = *o
	case *rbacv1.ClusterRole:
		i.roles = append(i.roles, *o)
	case *rbacv1.ClusterRoleBinding:
		i.bindings = append(i.bindings, *o)
	case *admissionv1.ValidatingAdmissionPolicy:
		i.policies = append(i.policies, o)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		i.policyBindings = append(i.policyBindings, o)
	}
}

// container is a container with its pod.
type container struct {
	corev1.Container
	pod corev1.PodSpec
}

// containers returns the containers of all DaemonSets. There are no init containers.
func (i *installed) containers(t *testing.T) (all []container) {
	t.Helper()
	for _, d := range i.daemons {
		pod := d.Spec.Template.Spec
		if len(pod.InitContainers) > 0 {
			t.Errorf("%s has init containers", d.Name)
		}
		for _, c := range pod.Containers {
			all = append(all, container{c, pod})
		}
	}
	return all
}

func (i *installed) container(t *testing.T, name string) container {
	t.Helper()
	containers := i.containers(t)
	at := slices.IndexFunc(containers, func(c container) bool { return c.Name == name })
	if at < 0 {
		t.Fatalf("no DaemonSet has a container %s", name)
	}
	return containers[at]
}

// volume returns the volume of a mount.
func (c container) volume(mount corev1.VolumeMount) corev1.Volume {
	at := slices.IndexFunc(c.pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
	return c.pod.Volumes[at]
}
