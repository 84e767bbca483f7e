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
)

const effectResources = `
- name: ` + profileQoS + `
  linux:
    classes:
      first: {oomScoreAdj: 1000, memory: {oomGroup: false}}
      late: {oomScoreAdj: {add: -500}, memory: {oomGroup: false}}
      throttled: {memory: {high: 16Mi, swapMax: 0}}
      swapped: {memory: {high: 16Mi, swapMax: 8Mi}}
      bursting: {cpu: {burst: 100%}}
`

// linuxEffects: the kernel does what a property promises.
func linuxEffects(t *testing.T, n *node) {
	writeClassFile(t, classFile+effectResources)
	t.Cleanup(func() { writeClassFile(t, classFile) })
	n.awaitOffered(t, profileQoS, "throttled", true)
	p := n.runPod(t, "effects", map[string]string{
		keyOf("first"): profileQoS + "=first", keyOf("late"): profileQoS + "=late", keyOf("throttled"): profileQoS + "=throttled",
		keyOf("swapped"): profileQoS + "=swapped", keyOf("bursting"): profileQoS + "=bursting",
	})
	t.Run("the container with the higher score is killed first", func(t *testing.T) { killOrder(t, p) })
	t.Run("a container above memory.high is slowed down, and not killed", func(t *testing.T) { throttledMemory(t, p) })
	t.Run("swap has a limit", func(t *testing.T) { limitedSwap(t, p) })
	t.Run("a container bursts above its CPU limit", func(t *testing.T) { burstingCPU(t, p) })
}

// killOrder: each time the kernel must kill a process of the machine to get memory, it kills that of the container with the higher score,
// although the other container uses more memory. QOS_KILLS is how often. Sysrq makes the kernel choose one process. If the pod's cgroup
// became too small instead, the kernel could choose a second process before the memory of the first is free.
func killOrder(t *testing.T, p *pod) {
	const megabyte, small, large = 1 << 20, 16, 64
	first := p.run(t, spec{name: "first", args: []string{"allocators", fmt.Sprint(small)}, resources: limited(256*megabyte, 100_000)})
	late := p.run(t, spec{name: "late", args: []string{"allocators", fmt.Sprint(large)}, resources: limited(256*megabyte, 100_000)})
	late.awaitAnonymous(t, large*megabyte)

	kills := int(fromEnvironment(t, "QOS_KILLS", 10))
	for i := range kills {
		if i > 0 {
			first.hangUp(t) // after the first round, the process is known to handle the signal
		}
		first.awaitAnonymous(t, small*megabyte)
		mustWrite(t, "/proc/sysrq-trigger", "f")
		eventually(t, "a process is killed", func() error {
			if killed := late.number(t, "memory.events", "oom_kill"); killed > 0 {
				t.Fatalf("in round %d, the process with the lower score was killed", i)
			}
			if killed := first.number(t, "memory.events", "oom_kill"); killed != i+1 {
				return fmt.Errorf("%d processes of the container with the higher score were killed", killed)
			}
			return nil
		})
		eventually(t, "the memory of the killed process is free", func() error {
			if has := first.number(t, "memory.stat", "anon"); has >= small*megabyte {
				return fmt.Errorf("%d bytes", has)
			}
			return nil
		})
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

func (c *container) awaitAnonymous(t testing.TB, bytes int) {
	t.Helper()
	eventually(t, "the container uses its memory", func() error {
		if has := c.number(t, "memory.stat", "anon"); has < bytes {
			return fmt.Errorf("%d of %d bytes", has, bytes)
		}
		return nil
	})
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

// throttledMemory: without swap, the container is stuck at memory.high, and the plugin reports that.
func throttledMemory(t *testing.T, p *pod) {
	const megabyte = 1 << 20
	c := p.run(t, spec{name: "throttled", args: []string{"allocate", "48"}, resources: limited(64*megabyte, 100_000)})
	eventually(t, "the container is slowed down, and reported as stuck", func() error {
		a := p.node.assignment(t, p, "throttled", profileQoS)
		if high := c.number(t, "memory.events", "high"); high == 0 || !strings.Contains(a.GetLimited(), "stuck at memory.high") {
			return fmt.Errorf("%d high events, assignment %v", high, a)
		}
		return nil
	})
	if killed, used := c.number(t, "memory.events", "oom_kill"), c.number(t, "memory.current", ""); killed > 0 || used > 32*megabyte {
		t.Errorf("%d processes were killed, %d bytes are in use", killed, used)
	}
}

// limitedSwap: the container swaps as much as its class permits.
func limitedSwap(t *testing.T, p *pod) {
	const megabyte, device = 1 << 20, "/dev/zram0"
	mustWrite(t, "/sys/block/zram0/disksize", "64M")
	t.Cleanup(func() { mustWrite(t, "/sys/block/zram0/reset", "1") })
	_, err := output("mkswap", device)
	must(t, err)
	_, err = output("swapon", device)
	must(t, err)
	t.Cleanup(func() {
		_, err := output("swapoff", device)
		must(t, err)
	})

	c := p.run(t, spec{name: "swapped", args: []string{"allocate", "48"}, resources: limited(64*megabyte, 100_000)})
	// The kernel counts the event only if it tries to swap more. If it sees before that no swap is left, it does not try.
	eventually(t, "the container has reached the limit of its swap", func() error {
		used := c.number(t, "memory.swap.current", "")
		if reached := c.number(t, "memory.swap.events", "max"); reached == 0 && used < 7*megabyte {
			return fmt.Errorf("%d bytes of swap", used)
		}
		return nil
	})
	if used := c.number(t, "memory.swap.peak", ""); used > 8*megabyte || used < 7*megabyte {
		t.Errorf("the container used %d bytes of swap", used)
	}
	c.remove(t)
}

// burstingCPU: a container that pauses may use more than its limit afterwards.
func burstingCPU(t *testing.T, p *pod) {
	c := p.run(t, spec{name: "bursting", args: []string{"bursts", "200ms", "300ms"}, resources: limited(64<<20, 20_000)})
	eventually(t, "the container bursts", func() error {
		if c.number(t, "cpu.stat", "nr_bursts") == 0 || c.number(t, "cpu.stat", "burst_usec") == 0 {
			return fmt.Errorf("cpu.stat: %s", mustRead(t, filepath.Join("/sys/fs/cgroup", c.cgroup(), "cpu.stat")))
		}
		return nil
	})
}
