// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// latency gives a latency to a class that has none, until the end of the case.
func latency(t *testing.T, p *pod) {
	n := p.node
	writeClassFile(t, strings.Replace(classFile, "ThrottleReadBps: 700k}", "ThrottleReadBps: 700k, Latency: 10ms}", 1))
	n.wantLatencyEffective(t, "true")
	c := p.run(t, spec{name: "quick", args: []string{"show", "/sys/fs/cgroup/io.latency"}})
	want := deviceNumber(t, "/dev/vda") + " target=10000"
	if got := strings.TrimSpace(c.printed(t)); got != want {
		t.Errorf("io.latency is %q before the first instruction, want %q", got, want)
	}

	file := filepath.Join(n.ioCgroup(c.cgroup()), "io.latency")
	mustWrite(t, file, deviceNumber(t, "/dev/vda")+" target=77")
	n.reread(t)
	eventually(t, "the latency is repaired", func() error {
		if got := strings.TrimSpace(mustRead(t, file)); got != want {
			return fmt.Errorf("io.latency is %q, want %q", got, want)
		}
		return nil
	})

	p.update(t, "quick", "blockio=")
	if got := mustRead(t, file); got != "" {
		t.Errorf("io.latency is %q after the container has left its class, want it empty", got)
	}
	writeClassFile(t, classFile)
	n.wantLatencyEffective(t, "")
}

// wantLatencyEffective waits until the condition LatencyEffective is "true", "false", or missing ("").
func (n *node) wantLatencyEffective(t testing.TB, want string) {
	t.Helper()
	eventually(t, "the status says whether latency targets are effective", func() error {
		got := ""
		if condition := n.condition(t, blockio, "LatencyEffective"); condition != nil {
			got = fmt.Sprint(condition.GetHealthy())
		}
		if got != want {
			return fmt.Errorf("LatencyEffective is %q, want %q", got, want)
		}
		return nil
	})
}
