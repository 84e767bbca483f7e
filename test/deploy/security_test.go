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
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// credentials is the directory of a pod's API credentials (client-go, rest.InClusterConfig).
const credentials = "/var/run/secrets/kubernetes.io/serviceaccount"

func TestOnlyThePublisherHasAPICredentials(t *testing.T) {
	found := render(t)
	for _, c := range found.containers(t) {
		if c.pod.AutomountServiceAccountToken == nil || *c.pod.AutomountServiceAccountToken {
			t.Errorf("the API server would mount a token into container %s", c.Name)
		}
		has := slices.ContainsFunc(c.pod.Volumes, func(v corev1.Volume) bool { return v.Projected != nil || v.Secret != nil })
		if has != (c.Name == "publisher") || (c.pod.ServiceAccountName != "") != has {
			t.Errorf("the pod of container %s has a token: %t; its service account is %q", c.Name, has, c.pod.ServiceAccountName)
		}
	}

	publisher := found.container(t, "publisher")
	at := slices.IndexFunc(publisher.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == credentials })
	if at < 0 {
		t.Fatalf("nothing is mounted at %s", credentials)
	}

	var files []string
	for _, source := range publisher.volume(publisher.VolumeMounts[at]).Projected.Sources {
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
		t.Errorf("files of the token's volume (-want +got):\n%s", diff)
	}
}

// hostMounts returns the host's paths in a container, with "rw" or "ro" and the mount path.
func (c container) hostMounts() map[string]string {
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		if v := c.volume(m); v.HostPath != nil {
			mode := map[bool]string{true: "ro", false: "rw"}[m.ReadOnly]
			mounts[v.HostPath.Path] = mode + " " + m.MountPath
		}
	}
	return mounts
}

func TestContainersMountOnlyTheHostPathsThatTheyNeed(t *testing.T) {
	found := render(t)
	for name, want := range map[string]map[string]string{
		"publisher": {
			"/run/qos-nri-plugin/read": "ro /run/qos-nri-plugin/read",
		},
		"shim": {
			"/run/qos-nri-plugin":                           "ro /run/qos-nri-plugin",
			"/var/lib/kubelet/device-plugins":               "rw /var/lib/kubelet/device-plugins",
			"/var/lib/kubelet/pod-resources":                "ro /var/lib/kubelet/pod-resources",
			"/var/lib/kubelet/plugins/qos.noderesource.dev": "ro /var/lib/kubelet/plugins/qos.noderesource.dev",
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
		if diff := cmp.Diff(want, found.container(t, name).hostMounts()); diff != "" {
			t.Errorf("container %s (-want +got):\n%s", name, diff)
		}
	}
}

// TestOnlyThePodOfThePluginSharesANamespaceOfTheHost: the shim is in the pod of the plugin, and the publisher in another
// pod.
func TestOnlyThePodOfThePluginSharesANamespaceOfTheHost(t *testing.T) {
	for _, c := range render(t).containers(t) {
		if c.pod.HostNetwork || c.pod.HostIPC || c.pod.HostPID != (c.Name != "publisher") {
			t.Errorf("container %s shares the host's network (%t), IPC (%t) or PIDs (%t)", c.Name, c.pod.HostNetwork, c.pod.HostIPC, c.pod.HostPID)
		}
	}
}

// TestMountsOfResctrlPropagateToThePlugin: resctrl may be mounted below /sys/fs after the start of the pod.
func TestMountsOfResctrlPropagateToThePlugin(t *testing.T) {
	found := render(t)
	for _, m := range found.container(t, "plugin").VolumeMounts {
		seen := m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer
		if seen != (m.MountPath == "/host/sys/fs") {
			t.Errorf("new mounts of the host below %s propagate: %t", m.MountPath, seen)
		}
	}
}

func TestNothingIsPrivileged(t *testing.T) {
	for _, c := range render(t).containers(t) {
		t.Run(c.Name, func(t *testing.T) {
			want := map[string][]corev1.Capability{"plugin": {"DAC_OVERRIDE"}}[c.Name]
			s := c.SecurityContext
			switch {
			case s == nil:
				t.Fatal("the container has no security context")
			case s.Privileged == nil || *s.Privileged:
				t.Error("the container is privileged")
			case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
				t.Error("the container may gain privileges")
			case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
				t.Error("the container may write to its root filesystem")
			case s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
				t.Error("the container may make any system call")
			case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}):
				t.Error("the container keeps capabilities")
			case !slices.Equal(s.Capabilities.Add, want):
				t.Errorf("the container has the capabilities %v, want %v", s.Capabilities.Add, want)
			case c.Name == "publisher" && (s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || s.RunAsGroup == nil):
				t.Error("the container may run as root, or as a user that the image chooses")
			}
		})
	}
}

// TestTheShimCannotTraceThePlugin checks that the plugin has a capability that the shim lacks. A process may trace
// another process of the same UID only if it has all capabilities of that process (cap_ptrace_access_check).
func TestTheShimCannotTraceThePlugin(t *testing.T) {
	found := render(t)
	lacking := slices.DeleteFunc(slices.Clone(found.container(t, "plugin").SecurityContext.Capabilities.Add), func(c corev1.Capability) bool {
		return slices.Contains(found.container(t, "shim").SecurityContext.Capabilities.Add, c)
	})
	if found.container(t, "shim").pod.HostPID && len(lacking) == 0 {
		t.Error("the plugin has no capability that the shim lacks, so /proc/<plugin>/root is open to the shim")
	}
}

// rights returns the verbs that the roles allow, by "group/resource".
func (i *installed) rights() map[string][]string {
	got := map[string][]string{}
	for _, role := range i.roles {
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					name := group + "/" + resource
					got[name] = slices.Sorted(slices.Values(slices.Concat(got[name], rule.Verbs)))
				}
			}
		}
	}
	return got
}

// rightsOf returns the verbs that one role allows.
func (i *installed) rightsOf(name string) map[string][]string {
	return (&installed{roles: slices.DeleteFunc(slices.Clone(i.roles), func(r rbacv1.ClusterRole) bool { return r.Name != name })}).rights()
}

func TestThePublisherHasOnlyTheRightsThatItUses(t *testing.T) {
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

// TestTheRightToEvictIsASeparateKustomization checks that deploy/kubernetes-eviction gives the publisher the right to
// evict, and no other right. The right is not installed by default, because evictions can end any pod.
func TestTheRightToEvictIsASeparateKustomization(t *testing.T) {
	found := renderAt(t, "deploy/kubernetes-eviction")
	if diff := cmp.Diff(map[string][]string{"/pods/eviction": {"create"}}, found.rights()); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}

	if len(found.objects) != 2 || len(found.bindings) != 1 {
		t.Fatalf("the kustomization has %d objects, want a role and its binding", len(found.objects))
	}

	got, usual := found.bindings[0], render(t).bindings[0]
	if got.RoleRef.Name != found.roles[0].Name || got.RoleRef == usual.RoleRef {
		t.Errorf("the binding is for the role %v", got.RoleRef)
	}

	if diff := cmp.Diff(usual.Subjects, got.Subjects); diff != "" {
		t.Errorf("subjects of the binding (-want +got):\n%s", diff)
	}
}

// TestFollowingAnnotationsIsASeparateKustomization checks that deploy/kubernetes-follow-annotations gives the publisher only one thing more
// than deploy/kubernetes: access to the socket on which classes can be changed.
func TestFollowingAnnotationsIsASeparateKustomization(t *testing.T) {
	found, usual := renderAt(t, "deploy/kubernetes-follow-annotations"), render(t)
	found.wantFollowing(t, usual, "--follow-annotations")
	if diff := cmp.Diff(usual.container(t, "plugin").hostMounts(), found.container(t, "plugin").hostMounts()); diff != "" {
		t.Errorf("mounts of the plugin (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(usual.rights(), found.rights()); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

// wantFollowing checks that the publisher has the flag, and access to the socket on which classes can be changed.
func (i *installed) wantFollowing(t *testing.T, usual *installed, flag string) {
	t.Helper()
	for name, more := range map[string][]string{
		"plugin":    {"--api-socket-group=65521"},
		"shim":      nil,
		"publisher": {flag, "--api-socket=/run/qos-nri-plugin/qos.sock"},
	} {
		if diff := cmp.Diff(append(usual.container(t, name).Args, more...), i.container(t, name).Args); diff != "" {
			t.Errorf("arguments of %s (-want +got):\n%s", name, diff)
		}
	}

	if diff := cmp.Diff(map[string]string{"/run/qos-nri-plugin": "ro /run/qos-nri-plugin"}, i.container(t, "publisher").hostMounts()); diff != "" {
		t.Errorf("mounts of the publisher (-want +got):\n%s", diff)
	}
}

func TestOnlyNamespacesThatScrapeReachTheMetrics(t *testing.T) {
	found := render(t)
	network := found.network.Spec
	selector, err := metav1.LabelSelectorAsSelector(&network.PodSelector)
	for _, d := range found.daemons {
		if labelled := d.Spec.Template.Labels; err != nil || !selector.Matches(labels.Set(labelled)) {
			t.Errorf("the NetworkPolicy selects %v (error: %v), but the pods have the labels %v", selector, err, labelled)
		}
	}

	if len(network.Ingress) != 1 || !slices.Equal(network.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Fatalf("the NetworkPolicy is %+v", network)
	}

	from := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"metrics": "enabled"}}}}
	if diff := cmp.Diff(from, network.Ingress[0].From); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}

	var want, got []string
	for _, c := range found.containers(t) {
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
	clusterScoped := []string{
		"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	}

	kinds := map[string]int{}
	for _, object := range found.objects {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		kinds[kind]++
		accessor, err := meta.Accessor(object)
		must(t, err)
		if got := accessor.GetNamespace(); !slices.Contains(clusterScoped, kind) && got != namespace {
			t.Errorf("%s %s is in namespace %q", kind, accessor.GetName(), got)
		}
	}

	want := slices.Sorted(slices.Values(append(clusterScoped, "ConfigMap", "DaemonSet", "NetworkPolicy", "ServiceAccount")))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(kinds))); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

// TestReportingTheReadinessOfNodesIsASeparateKustomization checks that deploy/kubernetes-node-readiness lets the reporter
// write the status of its own Node, and gives the reporter no other right.
func TestReportingTheReadinessOfNodesIsASeparateKustomization(t *testing.T) {
	found, usual := renderAt(t, "deploy/kubernetes-node-readiness"), render(t)
	want := usual.rights()
	want["authentication.k8s.io/nodes"] = []string{"impersonate:associated-node"}
	want["/nodes"] = []string{"get", "impersonate-on:associated-node:get"}
	want["/nodes/status"] = []string{"impersonate-on:associated-node:update"}
	if diff := cmp.Diff(want, found.rights()); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}

	reporter, publisher := found.container(t, "reporter"), found.container(t, "publisher")
	if !slices.ContainsFunc(reporter.Env, func(e corev1.EnvVar) bool {
		return e.Name == "CHECK_ENDPOINT" && e.Value == "http://localhost:9421"+publisher.ReadinessProbe.HTTPGet.Path
	}) {
		t.Errorf("the reporter does not ask the publisher whether it is ready: %v", reporter.Env)
	}

	if mounts := reporter.hostMounts(); len(mounts) > 0 {
		t.Errorf("the reporter mounts %v", mounts)
	}
}
