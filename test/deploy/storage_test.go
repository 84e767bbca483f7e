// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestStorageIsASeparateKustomization checks what deploy/storage adds to the usual manifests: the rights of its Deployment,
// and the publisher's access to the socket on which classes can be changed.
func TestStorageIsASeparateKustomization(t *testing.T) {
	found, usual := renderAt(t, "deploy/storage"), render(t)
	found.wantFollowing(t, usual, "--follow-claims")
	want := map[string][]string{
		"/pods": {"list", "watch"}, "/persistentvolumeclaims": {"list", "watch"}, "/persistentvolumes": {"list", "watch"},
		"storage.k8s.io/volumeattributesclasses": {"list", "watch"}, "storage.k8s.io/storageclasses": {"list", "watch"},
		"qos.noderesource.dev/nodeqosresources": {"list", "patch", "watch"}, "events.k8s.io/events": {"create", "patch"},
	}

	if diff := cmp.Diff(want, found.rightsOf("qos-storage")); diff != "" {
		t.Errorf("rights of qos-storage in the cluster (-want +got):\n%s", diff)
	}
}

// TestTheExternalResizerSharesTheSocketOfStorage checks that the external-resizer uses the CSI socket that
// qos-storage serves. Both containers must run as the same user.
func TestTheExternalResizerSharesTheSocketOfStorage(t *testing.T) {
	found := renderAt(t, "deploy/storage-claim-status")
	storage, resizer := found.deployed(t, "storage"), found.deployed(t, "csi-resizer")
	want := []string{"--drivers=topolvm.io", "--namespace=$(NAMESPACE)", "--metrics-address=:9422", "--csi-dir=/csi"}
	if diff := cmp.Diff(want, storage.Args); diff != "" {
		t.Errorf("arguments of qos-storage (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]string{"--csi-address=/csi/topolvm.io.sock", "--leader-election"}, resizer.Args); diff != "" {
		t.Errorf("arguments of the external-resizer (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(storage.VolumeMounts, resizer.VolumeMounts); diff != "" {
		t.Errorf("mounts (-storage +resizer):\n%s", diff)
	}

	if diff := cmp.Diff(storage.SecurityContext, resizer.SecurityContext); diff != "" {
		t.Errorf("security context (-storage +resizer):\n%s", diff)
	}
}

// TestTwoReplicasOfStorageRunWithoutAccessToTheNode also checks that they have the image of the plugin and a readiness probe.
func TestTwoReplicasOfStorageRunWithoutAccessToTheNode(t *testing.T) {
	found := renderAt(t, "deploy/storage")
	if len(found.deployments) != 1 {
		t.Fatalf("there are %d Deployments, want one", len(found.deployments))
	}
	deployment := found.deployments[0]
	pod := deployment.Spec.Template.Spec
	c := pod.Containers[0]
	switch s := c.SecurityContext; {
	case *deployment.Spec.Replicas != 2 || deployment.Namespace != namespace:
		t.Errorf("the Deployment has %d replicas in namespace %q", *deployment.Spec.Replicas, deployment.Namespace)
	case len(pod.Volumes) > 0 || pod.HostPID || pod.HostNetwork || pod.HostIPC:
		t.Error("the pod has volumes or namespaces of the host")
	case *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !*s.RunAsNonRoot || len(s.Capabilities.Drop) != 1:
		t.Errorf("the security context of the container is %+v", s)
	}
	if probe := c.ReadinessProbe; probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/readyz" {
		t.Errorf("the readiness probe of the container is %+v", probe)
	}
	if image := found.container(t, "plugin").Image; c.Image != image {
		t.Errorf("the image is %s, want that of the plugin, %s", c.Image, image)
	}
}

// TestTheReplicasOfStorageAreProtected: evictions end one replica at a time, and only namespaces that scrape metrics can
// connect.
func TestTheReplicasOfStorageAreProtected(t *testing.T) {
	found := renderAt(t, "deploy/storage")
	pods := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "qos-storage"}}
	budgets, policies := 0, 0
	for _, object := range found.objects {
		switch o := object.(type) {
		case *appsv1.Deployment:
			if diff := cmp.Diff(pods, o.Spec.Selector); diff != "" {
				t.Errorf("pods of the Deployment (-want +got):\n%s", diff)
			}
		case *policyv1.PodDisruptionBudget:
			budgets++
			if diff := cmp.Diff(pods, o.Spec.Selector); diff != "" || o.Spec.MaxUnavailable.IntValue() != 1 {
				t.Errorf("the budget has maxUnavailable %v, and pods (-want +got):\n%s", o.Spec.MaxUnavailable, diff)
			}
		case *networkingv1.NetworkPolicy:
			if o.Name != "qos-storage" {
				continue
			}
			policies++

			// As the NetworkPolicy of the plugin, for the pods and the port of qos-storage.
			want := render(t).network.Spec
			want.PodSelector = *pods
			want.Ingress[0].Ports = want.Ingress[0].Ports[:1]
			*want.Ingress[0].Ports[0].Port = intstr.FromString(found.deployed(t, "storage").Ports[0].Name)
			if diff := cmp.Diff(want, o.Spec); diff != "" {
				t.Errorf("the NetworkPolicy (-want +got):\n%s", diff)
			}
		}
	}

	if budgets != 1 || policies != 1 {
		t.Errorf("there are %d PodDisruptionBudgets and %d NetworkPolicies of qos-storage, want one each", budgets, policies)
	}
}

// deployed returns a container of the Deployment.
func (i *installed) deployed(t *testing.T, name string) corev1.Container {
	t.Helper()
	for _, deployment := range i.deployments {
		for _, c := range deployment.Spec.Template.Spec.Containers {
			if c.Name == name {
				return c
			}
		}
	}

	t.Fatalf("no Deployment has a container %s", name)
	return corev1.Container{}
}

// TestControllersOfClaimsHaveTheirOwnServiceAccounts checks deploy/storage-statefulsets and deploy/storage-defaults. The controllers that may
// patch claims have other ServiceAccounts than qos-storage, which writes limits.
func TestControllersOfClaimsHaveTheirOwnServiceAccounts(t *testing.T) {
	for name, c := range map[string]struct {
		dir    string
		rights map[string][]string
	}{
		"qos-storage-resize": {"deploy/storage-statefulsets", map[string][]string{
			"/pods": {"list", "watch"}, "/persistentvolumeclaims": {"list", "patch", "watch"}, "apps/statefulsets": {"get", "list", "watch"},
			"storage.k8s.io/storageclasses": {"list", "watch"}, "qos.noderesource.dev/statefulsetvolumes": {"create", "list", "patch", "watch"},
			"qos.noderesource.dev/statefulsetvolumes/status": {"patch"}, "events.k8s.io/events": {"create", "patch"},
		}},
		"qos-storage-defaults": {"deploy/storage-defaults", map[string][]string{
			"/persistentvolumes": {"list", "watch"}, "/persistentvolumeclaims": {"list", "patch", "watch"},
			"storage.k8s.io/storageclasses": {"list", "watch"}, "storage.k8s.io/volumeattributesclasses": {"list", "watch"},
			"events.k8s.io/events": {"create", "patch"},
		}},
	} {
		t.Run(name, func(t *testing.T) { renderAt(t, c.dir).isSeparate(t, name, c.rights) })
	}
}

// isSeparate checks the rights of a controller in the cluster, and that its objects select only its own pods.
func (i *installed) isSeparate(t *testing.T, name string, want map[string][]string) {
	t.Helper()
	if diff := cmp.Diff(want, i.rightsOf(name)); diff != "" {
		t.Errorf("rights in the cluster (-want +got):\n%s", diff)
	}

	pods := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name}}
	count := 0
	for _, object := range i.objects {
		var selector *metav1.LabelSelector
		switch o := object.(type) {
		case *appsv1.Deployment:
			selector = o.Spec.Selector
			if account := o.Spec.Template.Spec.ServiceAccountName; account != name {
				t.Errorf("the pods have the ServiceAccount %s", account)
			}
			if image := render(t).container(t, "plugin").Image; o.Spec.Template.Spec.Containers[0].Image != image {
				t.Errorf("the image is %s, want %s", o.Spec.Template.Spec.Containers[0].Image, image)
			}
		case *policyv1.PodDisruptionBudget:
			selector = o.Spec.Selector
		case *networkingv1.NetworkPolicy:
			selector = &o.Spec.PodSelector
		default:
			continue
		}
		count++
		if diff := cmp.Diff(pods, selector); diff != "" {
			t.Errorf("pods of a %T (-want +got):\n%s", object, diff)
		}
	}
	if count != 3 {
		t.Errorf("there are %d objects with selectors, want a Deployment, a PodDisruptionBudget and a NetworkPolicy", count)
	}
}
