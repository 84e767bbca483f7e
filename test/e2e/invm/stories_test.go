// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/stories"
)

// act is the way in which a test makes a story of docs/stories.md happen on the kernel.
type act struct {
	// args are the arguments of the container's workload.
	args []string
	// happens returns an error until the kernel has the effect of the story. It is nil for stories without effects.
	happens func(t *testing.T, c *container) error
	// singleProcessOOMKill is the kubelet's option of this name. Without it, the kernel kills all processes of a container together.
	singleProcessOOMKill bool
}

// acts returns the acts of the stories by title.
func acts() map[string]act {
	atLeast := func(file, key string, least int) func(*testing.T, *container) error {
		return func(t *testing.T, c *container) error { return c.atLeast(t, file, key, least) }
	}
	return map[string]act{
		"OOM kill of single processes": {args: []string{"allocators", "256"}, happens: atLeast("memory.events", "oom_kill", 1)},
		"Memory QoS of a container":    {args: []string{"allocate", "60"}, happens: atLeast("memory.events", "high", 1)},
		"Swap of a container": {
			// The container may use 32 MiB of memory and 16 MiB of swap, together less than 64 MiB.
			args: []string{"allocators", "64"}, happens: atLeast("memory.swap.peak", "", 14*megabyte), singleProcessOOMKill: true,
		},
		"CPU bursts":  {args: []string{"bursts", "200ms", "300ms"}, happens: atLeast("cpu.stat", "nr_bursts", 1)},
		"NUMA memory": {args: []string{"allocate", "16"}, happens: spread},
		"OOM score apart from the Pod QoS class": {
			args: []string{"allocators", fmt.Sprint(largeMiB)}, happens: atLeast("memory.stat", "anon", largeMiB*megabyte),
		},
	}
}

// spread returns an error until each of two NUMA nodes has half of 16 MiB.
func spread(t *testing.T, c *container) error {
	var on [2]int
	text := mustRead(t, filepath.Join("/sys/fs/cgroup", c.cgroup(), "memory.numa_stat"))
	_, err := fmt.Sscanf(text, "anon N0=%d N1=%d", &on[0], &on[1])
	if err == nil && min(on[0], on[1]) < 8<<20 {
		err = fmt.Errorf("memory.numa_stat is %s", text)
	}
	return err
}

// storiesOfThePage runs the stories of docs/stories.md like TestTheStoriesOfThePageRun, but on the kernel, and checks
// their effects.
func storiesOfThePage(t *testing.T, n *node) {
	all, err := stories.Read(mustRead(t, "/share/stories.md"))
	must(t, err)
	addSwap(t)
	t.Cleanup(func() { writeClassFile(t, classFile) })
	for _, story := range all {
		t.Run(story.Title, func(t *testing.T) { n.runStory(t, story) })
	}
}

func (n *node) runStory(t *testing.T, story stories.Story) {
	before := n.status(t).GetConfig().GetGeneration()
	writeClassFile(t, story.ClassFile)
	eventually(t, "the class file is applied", func() error {
		if config := n.status(t).GetConfig(); config.GetGeneration() == before {
			return fmt.Errorf("not yet: %s", config.GetLastError())
		}
		return nil
	})
	config := podConfig(story.Pod.Name, story.Pod.Annotations)
	config.Labels = story.Labels()
	p, err := n.makePod(t, config)
	must(t, err)
	t.Cleanup(func() { p.remove(t) })

	acting, containers := acts()[story.Title], map[string]*container{}
	for _, wanted := range story.Pod.Spec.Containers {
		resources := limited(wanted.Resources.Limits.Memory().Value(), wanted.Resources.Limits.Cpu().MilliValue()*100)
		if !acting.singleProcessOOMKill {
			resources.Unified = map[string]string{"memory.oom.group": "1"}
		}
		containers[wanted.Name] = p.run(t, spec{
			name: wanted.Name, args: acting.args, annotations: story.Allocated(wanted), resources: resources,
		})
	}
	for _, command := range story.Shown {
		if got := containers[command.Container].prints(t, command); got != command.Output {
			t.Errorf("%s: got %q, want %q", command.File, got, command.Output)
		}
	}

	first := containers[story.Pod.Spec.Containers[0].Name]
	if acting.happens != nil {
		eventually(t, "the story happens", func() error { return acting.happens(t, first) })
	}
	if story.Pod.Name == "kill-order" {
		n.killOrder(t, first, story)
	}
	for _, command := range story.Effects {
		if got := containers[command.Container].prints(t, command); !stories.SameButNumbers(got, command.Output) {
			t.Errorf("%s: got %q, want %q with other numbers", command.File, got, command.Output)
		}
	}
	if story.Pod.Name == "swap" {
		if peak, most := first.number(t, "memory.swap.peak", ""), first.number(t, "memory.swap.max", ""); peak > most {
			t.Errorf("the container used %d of %d bytes of swap", peak, most)
		}
	}
}

// prints returns the output of a command in the container.
func (c *container) prints(t *testing.T, command stories.Command) string {
	t.Helper()
	file := command.File
	if name, isCgroup := strings.CutPrefix(file, "/sys/fs/cgroup/"); isCgroup {
		file = filepath.Join("/sys/fs/cgroup", c.cgroup(), name)
	}
	pids := c.pod.node.processes(t, c.cgroup())
	if len(pids) == 0 {
		t.Fatal("the container has no process")
	}
	data, err := os.ReadFile(strings.Replace(file, "/proc/1/", "/proc/"+pids[0]+"/", 1))
	must(t, err)
	return command.Prints(string(data))
}

// addSwap makes zram the swap of the machine.
func addSwap(t *testing.T) {
	const device = "/dev/zram0"
	mustWrite(t, "/sys/block/zram0/disksize", "64M")
	t.Cleanup(func() { mustWrite(t, "/sys/block/zram0/reset", "1") })
	for _, program := range []string{"mkswap", "swapon"} {
		_, err := output(program, device)
		must(t, err)
	}
	t.Cleanup(func() {
		_, err := output("swapoff", device)
		must(t, err)
	})
}
