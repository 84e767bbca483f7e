// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const (
	reclaimResources = `
- name: ` + profileQoS + `
  linux:
    classes:
      protected: {memory: {low: 64Mi}}
      pressing: {memory: {swapMax: 0}}
      contrary: {memory: {min: 64Mi, high: 16Mi, swapMax: max}}
`
	// The containers of reclaimed allocate so much memory.
	heldMiB = 24
)

// reclaimed: when the containers of a node need more memory than there is, the kernel reclaims memory of a container
// without a class, but not of a container with memory.low. If the pod's cgroup has no memory.low, the kernel reclaims
// memory of both, and the plugin reports that.
func reclaimed(t *testing.T, n *node) {
	addSwap(t)
	n.offer(t, reclaimResources, profileQoS, "protected")

	// The kernel may take all memory from one of two unprotected containers, so exactly one of them is protected in each
	// case. `noise` is what the kernel may reclaim of the protected one.
	const noise = 1 << 18
	t.Run("a container with memory.low keeps its memory if its parents have memory.low, too", func(t *testing.T) {
		if protected, plain := n.press(t, "max"); protected > noise || plain < 8*megabyte {
			t.Errorf("%d bytes of the protected container and %d bytes of the other were reclaimed; want at most %d and at least 8 MiB", protected, plain, noise)
		}
	})
	t.Run("a container with memory.low loses memory if its pod has no memory.low", func(t *testing.T) {
		if protected, plain := n.press(t, "0"); protected < 8*megabyte || plain > noise {
			t.Errorf("%d bytes of the container whose pod has no memory.low and %d bytes of the other were reclaimed; want at least 8 MiB and at most %d", protected, plain, noise)
		}
	})
	t.Run("a container with memory.min loses the memory above its own memory.high", func(t *testing.T) { aboveHigh(t, n) })
}

// press runs a container with memory.low and one without a class, and then a third one that needs a part of their
// memory. `podLow` is the memory.low of the first container's pod. If it is 0, the second container is protected. After
// the plugin has reported why the class of the first container does not have its full effect, press returns the memory
// that the kernel has reclaimed from the first two.
func (n *node) press(t *testing.T, podLow string) (protected, plain int) {
	t.Helper()
	run := func(name string, annotations map[string]string) (*pod, *container) {
		p := n.runPod(t, name, annotations)
		return p, p.run(t, spec{name: "main", args: []string{"allocate", fmt.Sprint(heldMiB)}})
	}
	holds := func(c *container) {
		eventually(t, "the container has its memory", func() error { return c.atLeast(t, "memory.stat", "anon", heldMiB*megabyte) })
	}

	of := func(class string) map[string]string {
		return map[string]string{keyOf("main"): profileQoS + "=" + class}
	}
	p, kept := run("protected", of("protected"))
	all := filepath.Join("/sys/fs/cgroup", path.Dir(p.cgroup()))
	setFor(t, filepath.Join(all, "memory.low"), "max")
	mustWrite(t, filepath.Join("/sys/fs/cgroup", p.cgroup(), "memory.low"), podLow)
	other, lost := run("plain", nil)
	if podLow == "0" {
		for _, dir := range []string{other.cgroup(), lost.cgroup()} {
			mustWrite(t, filepath.Join(n.ioCgroup(dir), "memory.low"), "max")
		}
	}
	holds(kept)
	holds(lost)
	setFor(t, filepath.Join(all, "memory.max"), fmt.Sprint(numberIn(t, filepath.Join(all, "memory.current"), "")+8*megabyte))
	_, third := run("pressing", of("pressing"))
	holds(third)

	eventually(t, "the parents of the container are reported", func() error {
		limited := n.assignment(t, p, "main", profileQoS).GetLimited()
		if podLow == "max" && limited != "" || podLow == "0" && !strings.HasPrefix(limited, "memory.low 64Mi has no effect because pod") {
			return fmt.Errorf("limited: %q", limited)
		}
		return nil
	})
	return kept.number(t, "memory.swap.current", ""), lost.number(t, "memory.swap.current", "")
}

// setFor sets a file until the end of the test.
func setFor(t *testing.T, file, text string) {
	t.Helper()
	before := strings.TrimSpace(mustRead(t, file))
	mustWrite(t, file, text)
	t.Cleanup(func() { mustWrite(t, file, before) })
}

// aboveHigh: in spite of memory.min, the kernel reclaims the memory that a container uses above its own memory.high.
func aboveHigh(t *testing.T, n *node) {
	p := n.runPod(t, "contrary", map[string]string{keyOf("main"): profileQoS + "=contrary"})
	for _, dir := range []string{p.cgroup(), path.Dir(p.cgroup())} {
		setFor(t, filepath.Join("/sys/fs/cgroup", dir, "memory.min"), fmt.Sprint(64*megabyte))
	}
	c := p.run(t, spec{name: "main", args: []string{"allocate", fmt.Sprint(heldMiB)}})
	eventually(t, "memory above memory.high is reclaimed", func() error { return c.atLeast(t, "memory.swap.current", "", 4*megabyte) })
	eventually(t, "the contradiction is reported", func() error {
		const want = "memory.min 64Mi is not below memory.high 16Mi: the kernel still reclaims what the container uses above memory.high " +
			"(lower memory.min or raise memory.high)"
		if got := n.assignment(t, p, "main", profileQoS).GetLimited(); got != want {
			return fmt.Errorf("limited: %q", got)
		}
		return nil
	})
}
