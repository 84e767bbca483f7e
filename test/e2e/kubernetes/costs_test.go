// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"math"
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

// costRuns is the number of runs. Each run measures with and without the plugin, and every second run in the opposite order.
const costRuns = 10

// TestCreationsTakeHardlyLongerWithThePlugin measures creations and starts of containers by containerd, with and without the plugin, and
// compares the medians of each run. The environment variable QOS_BENCH_CONTAINERS is the number of containers with the plugin, and
// also the number without it; a benchmark uses 1000. QOS_BENCH_TOLERANCE is the factor by which the goal mostCost may be
// exceeded. The default factor is for a machine on which other tests run.
func TestCreationsTakeHardlyLongerWithThePlugin(t *testing.T) {
	containers, err := strconv.Atoi(cmp.Or(os.Getenv("QOS_BENCH_CONTAINERS"), "20"))
	must(t, err)
	tolerance, err := strconv.ParseFloat(cmp.Or(os.Getenv("QOS_BENCH_TOLERANCE"), "1.5"), 64)
	must(t, err)

	c := newCreator(t)
	inTurn := max(1, containers/costRuns)
	medians := map[bool][]time.Duration{} // by whether the plugin runs
	for run := range costRuns {
		for _, with := range []bool{run%2 == 0, run%2 != 0} {
			c.set(t, with)
			c.measure(t, min(inTurn, 20)) // to warm up
			took := c.measure(t, inTurn)
			slices.Sort(took)
			medians[with] = append(medians[with], took[len(took)/2])
		}
	}

	ratio, low, high := meanRatio(medians[true], medians[false])
	result := fmt.Sprintf("creation and start by containerd, %d runs with %d containers each: with the plugin %v, without %v (p50); "+
		"ratio %.3f, with 95%% confidence between %.3f and %.3f; the goal is at most %.2f",
		costRuns, inTurn, medians[true], medians[false], ratio, low, high, mostCost)
	t.Log(result)
	if low > mostCost*tolerance { // otherwise the whole difference may be chance, as on a busy machine
		t.Errorf("with a tolerance of %.2f, the goal is missed: %s", tolerance, result)
	}
}

// meanRatio returns the geometric mean of the ratios of pairs, and its confidence interval of 95% for costRuns pairs (Student's t).
func meanRatio(of, to []time.Duration) (mean, low, high float64) {
	const student = 2.262 // for costRuns - 1 degrees of freedom
	n := float64(len(of))
	sum, squares := 0.0, 0.0
	for i := range of {
		log := math.Log(of[i].Seconds() / to[i].Seconds())
		sum, squares = sum+log, squares+log*log
	}

	center := sum / n
	variance := max(0, squares-n*center*center) / (n - 1)
	half := student * math.Sqrt(variance/n)
	return math.Exp(center), math.Exp(center - half), math.Exp(center + half)
}

// TestTheConfidenceIntervalOfRatios: the logarithms of the ratios are 0 and 0.2, five times each. Their mean is 0.1, with a standard error of
// 1/30, and the table of Student's t has 2.262 standard errors for 95%: from 0.025 to 0.175. The ratios are e to the power of these.
func TestTheConfidenceIntervalOfRatios(t *testing.T) {
	var of, to []time.Duration
	for i := range costRuns {
		to = append(to, time.Second)
		of = append(of, time.Duration(math.Exp(0.2*float64(i%2))*float64(time.Second)))
	}
	mean, low, high := meanRatio(of, to)
	if got, want := fmt.Sprintf("%.3f %.3f %.3f", mean, low, high), "1.105 1.025 1.192"; got != want {
		t.Errorf("mean, low and high are %s, want %s", got, want)
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
	running bool // whether the plugin runs
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

// set starts or ends the plugin, unless it is in that state.
func (c *creator) set(t *testing.T, running bool) {
	t.Helper()
	switch {
	case running == c.running:
		return
	case running:
		c.plugin.mustStart(t)
		c.node.ready(t, func() string { return "127.0.0.1:9420" })
	default:
		c.plugin.mustEnd(t, syscall.SIGTERM)
		c.awaitEnd(t)
	}
	c.running = running
}

// measure creates and starts containers, one after another, and returns the duration for each.
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
