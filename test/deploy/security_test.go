// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// credentials is the directory of a pod's API credentials (client-go, rest.InClusterConfig).
const credentials = "/var/run/secrets/kubernetes.io/serviceaccount"

func TestOnlyTheShimHasAPICredentials(t *testing.T) {
	found := render(t)
	pod := found.pod()
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("the API server would mount a token into every container")
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		has := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			v := found.volumes()[m.Name]
			return m.MountPath == credentials || v.Projected != nil || v.Secret != nil
		})
		if has != (c.Name == "shim") {
			t.Errorf("container %s has credentials: %t", c.Name, has)
		}
	}
	token := found.volumes()["token"].Projected
	if token == nil {
		t.Fatal("there is no projected token")
	}
	var files []string
	for _, source := range token.Sources {
		if s := source.ServiceAccountToken; s != nil {
			files = append(files, s.Path)
		}
		if s := source.ConfigMap; s != nil && s.Name == "kube-root-ca.crt" {
			files = append(files, s.Items[0].Path)
		}
		if s := source.DownwardAPI; s != nil {
			files = append(files, s.Items[0].Path)
		}
	}
	if diff := cmp.Diff([]string{"token", "ca.crt", "namespace"}, files); diff != "" {
		t.Errorf("what a client looks for is not there (-want +got):\n%s", diff)
	}
}

// hostMounts returns the host's paths in a container, with "rw" or "ro" and the mount path.
func (i *installed) hostMounts(c corev1.Container) map[string]string {
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		if v := i.volumes()[m.Name]; v.HostPath != nil {
			mode := map[bool]string{true: "ro", false: "rw"}[m.ReadOnly]
			mounts[v.HostPath.Path] = mode + " " + m.MountPath
		}
	}
	return mounts
}

func TestContainersMountOnlyTheHostPathsThatTheyNeed(t *testing.T) {
	found := render(t)
	for name, want := range map[string]map[string]string{
		"shim": {
			"/run/qos-nri-plugin":             "ro /run/qos-nri-plugin",
			"/var/lib/kubelet/device-plugins": "rw /var/lib/kubelet/device-plugins",
			"/var/lib/kubelet/pod-resources":  "ro /var/lib/kubelet/pod-resources",
		},
		"plugin": {
			"/run/qos-nri-plugin": "rw /run/qos-nri-plugin",
			"/var/run/nri":        "ro /var/run/nri",
			"/sys/fs/cgroup":      "rw /host/sys/fs/cgroup",
			"/sys/fs":             "ro /host/sys/fs",
			"/sys/block":          "ro /host/sys/block",
			"/sys/dev/block":      "ro /host/sys/dev/block",
			"/sys/devices":        "ro /host/sys/devices",
			"/dev":                "ro /host/dev",
			"/proc":               "ro /host/proc",
		},
	} {
		if diff := cmp.Diff(want, found.hostMounts(found.container(t, name))); diff != "" {
			t.Errorf("container %s (-want +got):\n%s", name, diff)
		}
	}
	if pod := found.pod(); pod.HostNetwork || pod.HostIPC {
		t.Error("the pod shares the host's network or IPC")
	}
}

func TestMountsOfResctrlPropagateToThePlugin(t *testing.T) {
	found := render(t)
	for _, m := range found.container(t, "plugin").VolumeMounts {
		seen := m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer
		if seen != (m.MountPath == "/host/sys/fs") {
			t.Errorf("mounts below %s are seen later: %t", m.MountPath, seen)
		}
	}
}

func TestNothingIsPrivileged(t *testing.T) {
	found := render(t)
	pod := found.pod()
	if len(pod.InitContainers) > 0 {
		t.Errorf("there are init containers: %v", pod.InitContainers)
	}
	for _, c := range pod.Containers {
		t.Run(c.Name, func(t *testing.T) {
			want := map[string][]corev1.Capability{"plugin": {"DAC_OVERRIDE"}}[c.Name]
			s := c.SecurityContext
			switch {
			case s == nil:
				t.Fatal("it has no security context")
			case s.Privileged == nil || *s.Privileged:
				t.Error("it is privileged")
			case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
				t.Error("it may gain privileges")
			case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
				t.Error("it may write to its root filesystem")
			case s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
				t.Error("it may make any system call")
			case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}):
				t.Error("it keeps capabilities")
			case !slices.Equal(s.Capabilities.Add, want):
				t.Errorf("it has capabilities %v, want %v", s.Capabilities.Add, want)
			}
		})
	}
}

// A process may trace another one of the same UID if its capabilities are a superset (cap_ptrace_access_check).
func TestTheShimCannotTraceThePlugin(t *testing.T) {
	found := render(t)
	lacking := slices.DeleteFunc(slices.Clone(found.container(t, "plugin").SecurityContext.Capabilities.Add), func(c corev1.Capability) bool {
		return slices.Contains(found.container(t, "shim").SecurityContext.Capabilities.Add, c)
	})
	if found.pod().HostPID && len(lacking) == 0 {
		t.Error("the plugin has no capability that the shim lacks, so /proc/<plugin>/root is open to the shim")
	}
}

// rights are verbs by group/resource.
func (i *installed) rights() map[string][]string {
	got := map[string][]string{}
	for _, role := range i.roles {
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					got[group+"/"+resource] = slices.Sorted(slices.Values(rule.Verbs))
				}
			}
		}
	}
	return got
}

func TestTheShimHasOnlyTheRightsThatItUses(t *testing.T) {
	want := map[string][]string{
		"/nodes":                                {"get"},
		"/pods":                                 {"list", "watch"},
		"/pods/status":                          {"patch"},
		"/events":                               {"create", "patch"},
		"qos.noderesource.dev/nodeqosresources": {"create", "list", "patch", "watch"},
		"qos.noderesource.dev/nodeqosresources/status": {"patch"},
	}
	if diff := cmp.Diff(want, render(t).rights()); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

// The right to evict can end any pod, so it is not installed by default.
func TestTheRightToEvictIsASeparateKustomization(t *testing.T) {
	found := renderAt(t, "deploy/kubernetes-eviction")
	if diff := cmp.Diff(map[string][]string{"/pods/eviction": {"create"}}, found.rights()); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	if len(found.objects) != 2 || len(found.bindings) != 1 {
		t.Fatalf("it has %d objects, want a role and its binding", len(found.objects))
	}
	got, usual := found.bindings[0], render(t).bindings[0]
	if got.RoleRef.Name != found.roles[0].Name || got.RoleRef == usual.RoleRef {
		t.Errorf("it binds %v", got.RoleRef)
	}
	if diff := cmp.Diff(usual.Subjects, got.Subjects); diff != "" {
		t.Errorf("it is bound to others than the shim (-want +got):\n%s", diff)
	}
}

func TestOnlyNamespacesThatScrapeReachTheMetrics(t *testing.T) {
	found := render(t)
	network, pod := found.network.Spec, found.daemons.Spec.Template
	selector, err := metav1.LabelSelectorAsSelector(&network.PodSelector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("the policy selects %v, %v; the pods have %v", selector, err, pod.Labels)
	}
	if len(network.Ingress) != 1 || !slices.Equal(network.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Fatalf("the policy is %+v", network)
	}

	from := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"metrics": "enabled"}}}}
	if diff := cmp.Diff(from, network.Ingress[0].From); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
	var want, got []string
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			want = append(want, port.Name)
		}
	}
	for _, port := range network.Ingress[0].Ports {
		got = append(got, port.Port.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func TestEverythingIsInOneNamespace(t *testing.T) {
	found := render(t)
	clusterScoped := []string{"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
	kinds := map[string]int{}
	for _, object := range found.objects {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		kinds[kind]++
		accessor, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		if got := accessor.GetNamespace(); !slices.Contains(clusterScoped, kind) && got != namespace {
			t.Errorf("%s %s is in namespace %q", kind, accessor.GetName(), got)
		}
	}
	want := []string{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition", "DaemonSet", "Namespace", "NetworkPolicy",
		"ServiceAccount"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(kinds))); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}
