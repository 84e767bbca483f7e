// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/stories"
)

const (
	megabyte = 1 << 20
	// The containers of killOrder allocate so much memory.
	smallMiB, largeMiB = 16, 64

	stallingResources = `
- name: ` + profileQoS + `
  linux: {classes: {stalling: {memory: {high: 16Mi, swapMax: 0}}}}
`
)

// killOrder: whenever the kernel must kill a process to get memory, it kills the process of the container of class
// `first`, although container `late` uses more memory. QOS_KILLS is the number of kills. Sysrq makes the kernel choose
// one process. If the pod's cgroup became too small instead, the kernel could choose a second process before the memory
// of the first is free.
func (n *node) killOrder(t *testing.T, late *container, story stories.Story) {
	p := n.runPod(t, "killed", map[string]string{keyOf("main"): story.Request("first")})
	first := p.run(t, spec{name: "main", args: []string{"allocators", fmt.Sprint(smallMiB)}, resources: limited(256*megabyte, 100_000)})

	kills := int(fromEnvironment(t, "QOS_KILLS", 10))
	for i := range kills {
		if i > 0 {
			first.hangUp(t) // after the first round, the process handles the signal
		}
		eventually(t, "the container uses its memory", func() error { return first.atLeast(t, "memory.stat", "anon", smallMiB*megabyte) })
		mustWrite(t, "/proc/sysrq-trigger", "f")
		eventually(t, "a process is killed", func() error {
			if killed := late.number(t, "memory.events", "oom_kill"); killed > 0 {
				t.Fatalf("in round %d, the process with the lower score was killed", i)
			}
			return first.atLeast(t, "memory.events", "oom_kill", i+1)
		})
		eventually(t, "the memory of the killed process is free", func() error {
			if has := first.number(t, "memory.stat", "anon"); has >= smallMiB*megabyte {
				return fmt.Errorf("%d bytes", has)
			}
			return nil
		})
	}
	if killed := first.number(t, "memory.events", "oom_kill"); killed != kills {
		t.Errorf("%d processes were killed in %d rounds, want one in each", killed, kills)
	}
	t.Logf("in %d of %d rounds, the process with the higher score was killed", kills, kills)
}

// hangUp sends SIGHUP to the container's first process.
func (c *container) hangUp(t testing.TB) {
	t.Helper()
	pid, err := strconv.Atoi(c.pod.node.processes(t, c.cgroup())[0])
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGHUP))
}

// atLeast returns an error if a number in a file of the container's cgroup is less than `least`.
func (c *container) atLeast(t testing.TB, file, key string, least int) error {
	t.Helper()
	if has := c.number(t, file, key); has < least {
		return fmt.Errorf("%s %s is %d, want at least %d", file, key, has, least)
	}
	return nil
}

// number returns a number in a file of the container's cgroup.
func (c *container) number(t testing.TB, file, key string) int {
	t.Helper()
	return numberIn(t, filepath.Join("/sys/fs/cgroup", c.cgroup(), file), key)
}

// numberIn returns the number behind a key in a file, or the only number in the file.
func numberIn(t testing.TB, file, key string) int {
	t.Helper()
	for line := range strings.Lines(mustRead(t, file)) {
		fields := strings.Fields(line)
		if len(fields) == 1 && key == "" || len(fields) == 2 && fields[0] == key {
			number, err := strconv.Atoi(fields[len(fields)-1])
			must(t, err)
			return number
		}
	}
	t.Fatalf("%s has no %q", file, key)
	return 0
}

// stallingMemory: without swap, a container that needs more memory than memory.high is stuck, and the plugin reports that.
func stallingMemory(t *testing.T, n *node) {
	n.offer(t, stallingResources, profileQoS, "stalling")
	p := n.runPod(t, "stalling", map[string]string{keyOf("main"): profileQoS + "=stalling"})
	c := p.run(t, spec{name: "main", args: []string{"allocate", "48"}, resources: limited(64*megabyte, 100_000)})
	eventually(t, "the container is slowed down, and reported as stuck", func() error {
		a := n.assignment(t, p, "main", profileQoS)
		if high := c.number(t, "memory.events", "high"); high == 0 || !strings.Contains(a.GetLimited(), "stuck at memory.high") {
			return fmt.Errorf("%d high events, assignment %v", high, a)
		}
		return nil
	})
	if killed, used := c.number(t, "memory.events", "oom_kill"), c.number(t, "memory.current", ""); killed > 0 || used > 32*megabyte {
		t.Errorf("%d processes were killed, and %d bytes are in use; want none killed, and at most 32 MiB in use", killed, used)
	}
}
