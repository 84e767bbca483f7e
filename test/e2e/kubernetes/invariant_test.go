// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

const (
	nodeAPISocket      = "/run/qos-nri-plugin/qos.sock"
	podResourcesSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"
)

// kubernetes reads the node's state from the kubelet and the API server.
func (n *node) kubernetes(ctx context.Context, kubelet podresources.PodResourcesListerClient) (*invariant.Kubernetes, error) {
	devices, err := invariant.DevicesOf(ctx, kubelet)
	if err != nil {
		return nil, err
	}

	var pods corev1.PodList
	var node corev1.Node
	var object nodeqosv1alpha1.NodeQOSResources
	err = errors.Join(
		n.get(&pods, "pods", "--all-namespaces", "--field-selector=spec.nodeName="+n.name),
		n.get(&node, "node", n.name),
		n.get(&object, "nodeqosresources", n.name))
	if err != nil {
		return nil, err
	}

	seen := &invariant.Kubernetes{
		Devices: devices, Requests: map[invariant.PodContainer][]string{}, Capacity: map[string]int64{}, Resources: object.Status.QOSResources,
	}

	for name, amount := range node.Status.Capacity {
		seen.Capacity[string(name)] = amount.Value()
	}

	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			of := invariant.PodContainer{Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name}
			for name := range c.Resources.Limits {
				if strings.HasPrefix(string(name), "qos.noderesource.dev/") {
					seen.Requests[of] = append(seen.Requests[of], string(name))
				}
			}
		}
	}

	return seen, nil
}

// get reads objects of the API.
func (n *node) get(object any, args ...string) error {
	output, err := n.try(append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return json.Unmarshal([]byte(output), object)
}

// holds checks the invariants of package invariant, which are true while nothing changes. It does not check the limits of
// disks, because the test cases check them.
func (n *node) holds(t *testing.T) {
	t.Helper()
	api, runtime := n.dial(t, nodeAPISocket), n.dial(t, containerdSocket)
	kubelet := podresources.NewPodResourcesListerClient(n.dial(t, podResourcesSocket))
	invariant.Machine{
		API: qosv1alpha1.NewNodeQOSClient(api), Kernel: n.machine.kernel,
		Live:       invariant.LiveByCRI(cri.NewRuntimeServiceClient(runtime), n.cgroupIn),
		Kubernetes: func(ctx context.Context) (*invariant.Kubernetes, error) { return n.kubernetes(ctx, kubelet) },
	}.Hold(t)
}

func (n *node) dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+socket, grpc.WithContextDialer(n.machine.dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, connection.Close()) })
	return connection
}

// cgroupIn returns the cgroup of a container, relative to the root of the hierarchy. If there is none, it returns a
// path that does not exist.
func (n *node) cgroupIn(_ *cri.PodSandbox, id string) string {
	dir, err := n.machine.cgroup(id)
	if id == "" || err != nil {
		return "none"
	}
	return dir
}
