// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/stories"
)

// TestTheStoriesOfThePageRun runs each story of docs/stories.md that has a class file, a pod and a command.
func TestTheStoriesOfThePageRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/stories.md")
	must(t, err)
	all, err := stories.Read(string(page))
	must(t, err)
	commands := 0
	for _, story := range all {
		commands += len(story.Shown) + len(story.Effects)
		t.Run(story.Title, func(t *testing.T) { runStory(t, story) })
	}
	if want := strings.Count(string(page), "$ kubectl exec"); commands != want || want < 15 {
		t.Errorf("the page has %d commands, and its complete stories have %d", want, commands)
	}
}

func runStory(t *testing.T, story stories.Story) {
	if strings.Contains(story.ClassFile, "memoryPolicy") {
		t.Skip("in a test program, NRI reports a version that cannot set NUMA policies; the tests in virtual machines run this story")
	}
	r := newMachineRigWith(t, story.ClassFile)
	sandbox := r.podWith(t, nriruntime.PodConfig{Name: story.Pod.Name, Labels: story.Labels(), Annotations: story.Pod.Annotations})

	ids := map[string]string{}
	for _, container := range story.Pod.Spec.Containers {
		config := nriruntime.ContainerConfig{
			Name: container.Name, OOMScoreAdj: 900, Annotations: story.Allocated(container), Resources: resourcesOf(container),
		}
		id := r.runWith(t, sandbox, config)
		ids[container.Name] = id
	}

	for _, command := range story.Shown {
		file := command.File
		if name, isCgroup := strings.CutPrefix(file, "/sys/fs/cgroup/"); isCgroup {
			file = r.cgroupFile(t, ids[command.Container], name)
		}
		file = strings.Replace(file, "/proc/1/", fmt.Sprintf("/proc/%d/", r.pidOf(t, ids[command.Container])), 1)
		data, err := r.host.ReadFile(file)
		must(t, err)
		if got := command.Prints(string(data)); got != command.Output {
			t.Errorf("%s: got %q, want %q", command.File, got, command.Output)
		}
	}
}

// resourcesOf returns the resources that a kubelet requests for a container with limits.
func resourcesOf(container corev1.Container) *api.LinuxResources {
	resources := &api.LinuxResources{Unified: map[string]string{"memory.oom.group": "1"}}
	if limit := container.Resources.Limits.Memory().Value(); limit > 0 {
		resources.Memory = &api.LinuxMemory{Limit: api.Int64(limit)}
	}
	if limit := container.Resources.Limits.Cpu().MilliValue(); limit > 0 {
		resources.Cpu = &api.LinuxCPU{Quota: api.Int64(limit * 100), Period: api.UInt64(100_000)}
	}
	return resources
}
