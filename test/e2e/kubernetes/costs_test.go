// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mostCost is the goal for the cost of the plugin. The time in which containerd creates and starts a container with the
// plugin must be at most mostCost times the time without the plugin.
const mostCost = 1.02

// TestCreationsTakeHardlyLongerWithThePlugin measures creations and starts of containers by containerd, in turn with
// and without the plugin. The environment variable QOS_BENCH_CONTAINERS is the number of containers with the plugin, and
// also the number without it; a benchmark uses 200. QOS_BENCH_TOLERANCE is the factor by which the goal mostCost may be
// exceeded. The default factor is for a machine on which other tests run.
func TestCreationsTakeHardlyLongerWithThePlugin(t *testing.T) {
	const inTurn = 5
	containers, err := strconv.Atoi(cmp.Or(os.Getenv("QOS_BENCH_CONTAINERS"), "20"))
	must(t, err)
	tolerance, err := strconv.ParseFloat(cmp.Or(os.Getenv("QOS_BENCH_TOLERANCE"), "1.5"), 64)
	must(t, err)

	c := newCreator(t)
	c.measure(t, inTurn) // to warm up
	var with, without []time.Duration
	for range max(1, containers/inTurn) {
		c.plugin.mustStart(t)
		c.node.ready(t, func() string { return "127.0.0.1:9420" })
		with = append(with, c.measure(t, inTurn)...)
		c.plugin.mustEnd(t, syscall.SIGTERM)
		c.awaitEnd(t)
		without = append(without, c.measure(t, inTurn)...)
	}

	slices.Sort(with)
	slices.Sort(without)
	medianWith, medianWithout := with[len(with)/2], without[len(without)/2]
	ratio := float64(medianWith) / float64(medianWithout)
	result := fmt.Sprintf("creation and start of %d containers by containerd: %.1f ms with the plugin, %.1f ms without (p50), ratio %.3f; the goal is at most %.2f",
		len(with), 1000*medianWith.Seconds(), 1000*medianWithout.Seconds(), ratio, mostCost)
	t.Log(result)
	if ratio > mostCost*tolerance {
		t.Errorf("with a tolerance of %.2f, the goal is missed: %s", tolerance, result)
	}
}

// creator creates containers in one pod, which requests a class. There is no kubelet, because it would remove the pod.
type creator struct {
	node    *node
	plugin  *process
	runtime cri.RuntimeServiceClient
	pod     *cri.PodSandboxConfig
	podID   string
	made    uint32
}

func newCreator(t *testing.T) *creator {
	t.Helper()
	n := ready(t)
	must(t, os.WriteFile(classFile, fmt.Appendf(nil, classes, 2), 0o644))
	n.kubelet.mustEnd(t, syscall.SIGTERM)
	t.Cleanup(func() { n.kubelet.mustStart(t); n.awaitNode(t) })

	c := &creator{node: n, runtime: cri.NewRuntimeServiceClient(n.dial(t, containerdSocket))}
	c.plugin = n.process("plugin", n.program("qos-nri-plugin"), "--mount-resctrl=false")
	t.Cleanup(func() { must(t, c.plugin.end(syscall.SIGTERM)) })
	c.pod = &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: "costs", Namespace: "default", Uid: "costs"},
		Annotations: map[string]string{"qos.noderesource.dev/pod": "blockio=slow"},
		Linux:       &cri.LinuxPodSandboxConfig{CgroupParent: path.Join(n.machine.node().cgroupRoot, "podcosts"), SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: c.namespaces()}},
	}

	answer, err := c.runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: c.pod})
	must(t, err)
	c.podID = answer.PodSandboxId
	t.Cleanup(func() {
		ctx := context.Background() // the test's context has ended
		_, err := c.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: c.podID})
		must(t, err)
		_, err = c.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: c.podID})
		must(t, err)
	})

	return c
}

func (c *creator) namespaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
}

// measure creates and starts containers, one after another, and returns how long each took.
func (c *creator) measure(t *testing.T, containers int) (took []time.Duration) {
	t.Helper()
	for range containers {
		began := time.Now()
		id, err := c.create(t)
		must(t, err)
		_, err = c.runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: id})
		must(t, err)
		took = append(took, time.Since(began))
		c.remove(t, id)
	}
	return took
}

func (c *creator) create(t *testing.T) (id string, err error) {
	t.Helper()
	c.made++
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main", Attempt: c.made},
		Image:    &cri.ImageSpec{Image: workloadImage, UserSpecifiedImage: workloadImage},
		Linux: &cri.LinuxContainerConfig{
			Resources:       &cri.LinuxContainerResources{},
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: c.namespaces()},
		},
	}
	answer, err := c.runtime.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: c.podID, Config: config, SandboxConfig: c.pod})
	return answer.GetContainerId(), err
}

func (c *creator) remove(t *testing.T, id string) {
	t.Helper()
	_, err := c.runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id})
	must(t, err)
	_, err = c.runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: id})
	must(t, err)
}

// awaitEnd waits until containerd knows that the plugin has ended. containerd may notice this only with the next
// creation, which then fails.
func (c *creator) awaitEnd(t *testing.T) {
	t.Helper()
	until(t, "containerd creates containers without the plugin", func() (bool, string) {
		id, err := c.create(t)
		if err != nil {
			return false, err.Error()
		}
		c.remove(t, id)
		return true, ""
	})
}
