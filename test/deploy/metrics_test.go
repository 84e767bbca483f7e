// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestEachMetricsProxyLeadsToAServerOnItsNode: the upstream of a proxy is a Service with internalTrafficPolicy Local, so
// it leads to a pod on the node of the proxy.
func TestEachMetricsProxyLeadsToAServerOnItsNode(t *testing.T) {
	servers, proxies := render(t), renderAt(t, "deploy/kubernetes-metrics")
	wantArgs := map[string]string{}
	for _, service := range proxies.services {
		if policy := service.Spec.InternalTrafficPolicy; policy == nil || *policy != corev1.ServiceInternalTrafficPolicyLocal {
			t.Errorf("Service %s routes to pods of other nodes", service.Name)
		}
		for _, d := range servers.daemons {
			if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
				continue
			}
			for _, c := range d.Spec.Template.Spec.Containers {
				at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.TargetPort.StrVal == c.Ports[0].Name })
				if at >= 0 {
					wantArgs[c.Name] = fmt.Sprintf("--upstream=http://%s:%d/", service.Name, service.Spec.Ports[at].Port)
				}
			}
		}
	}

	for _, server := range servers.containers(t) {
		proxy := proxies.container(t, server.Name)
		want := []string{fmt.Sprintf("--secure-listen-address=:%d", proxy.Ports[0].ContainerPort), wantArgs[server.Name], "--allow-paths=/metrics"}
		if diff := cmp.Diff(want, proxy.Args); diff != "" {
			t.Errorf("arguments of the proxy of %s (-want +got):\n%s", server.Name, diff)
		}
	}
}

// TestTheMetricsProxiesAreTheOnlyFurtherClientsOfTheMetrics compares the NetworkPolicy of deploy/kubernetes-metrics with
// the usual one. Both select the same pods and ports, but this one admits the proxies.
func TestTheMetricsProxiesAreTheOnlyFurtherClientsOfTheMetrics(t *testing.T) {
	usual, proxies := render(t).network.Spec, renderAt(t, "deploy/kubernetes-metrics")
	if diff := cmp.Diff(proxies.daemons[0].Spec.Template.Labels, proxies.network.Spec.Ingress[0].From[0].PodSelector.MatchLabels); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
	usual.Ingress[0].From = proxies.network.Spec.Ingress[0].From
	if diff := cmp.Diff(usual, proxies.network.Spec); diff != "" {
		t.Errorf("the policy has other pods or ports than the usual one (-want +got):\n%s", diff)
	}
}

// TestAMetricsProxyMayOnlyAskWhoMayReadMetrics: a proxy sends reviews to the API server to check who its client is, and
// whether the client may read metrics. Its pod has only these rights, and nothing of the host: no namespace, volume, root user or
// capability.
func TestAMetricsProxyMayOnlyAskWhoMayReadMetrics(t *testing.T) {
	found := renderAt(t, "deploy/kubernetes-metrics")
	want := map[string][]string{"authentication.k8s.io/tokenreviews": {"create"}, "authorization.k8s.io/subjectaccessreviews": {"create"}}
	if diff := cmp.Diff(want, found.rights()); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}

	for _, c := range found.containers(t) {
		if c.pod.HostNetwork || c.pod.HostPID || c.pod.HostIPC || len(c.pod.Volumes) > 0 {
			t.Errorf("the pod uses namespaces of the host, or has volumes: %+v", c.pod)
		}
		if len(found.bindings) != 1 || found.bindings[0].Subjects[0].Name != c.pod.ServiceAccountName {
			t.Errorf("the rights are bound by %+v, the ServiceAccount is %s", found.bindings, c.pod.ServiceAccountName)
		}
		if s := c.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("container %s may run as root or has capabilities: %+v", c.Name, s)
		}
	}
}
