// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// heldLimits lets a container write to a disk as fast as the kernel allows. First the kernel enforces the limit of the
// container's class. Then another program removes the limit repeatedly, faster than the plugin repairs it.
func heldLimits(t *testing.T, p *pod) {
	n := p.node
	printed, err := output("workload", "io", "write", "/dev/vda", "1")
	must(t, err)
	if rate := bytesPerSecond(t, printed); rate < 2e6 {
		t.Skipf("this busy host makes the VM's disk too slow: %.3g B/s, and the limit is 1e6", rate)
	}

	n.plugin.end(t, syscall.SIGTERM)
	n.plugin = start(t, "qos-nri-plugin", "run", "--nri-socket", nriSocket, "--log-level", "debug", "--held-interval", "1s")
	n.waitRegistered(t)
	defer func() { // other cases run without --held-interval, because the emulated CPU invents the use of RDT classes
		n.plugin.end(t, syscall.SIGTERM)
		n.startPlugin(t)
	}()
	c := p.run(t, spec{name: "limited", args: []string{"io", "write", "/dev/vda", "600"}, devices: []string{"/dev/vda", "/dev/vdb"}})
	const labels = `class="throttled",resource="k8s.io/blockio"} `
	use := func() (ratio float64) {
		ratio, _ = valueAfter(metrics(t), `qos_class_limit_use_ratio{class="throttled",limit="ThrottleWriteBps",part="vda",resource="k8s.io/blockio"} `)
		return ratio
	}

	eventually(t, "the limit was reached and compared for a whole window", func() error {
		held := n.held(t)
		if !held.GetHealthy() {
			t.Fatalf("a limit that the kernel holds is reported: %s", held.GetMessage())
		}
		if ratio := use(); held.GetReason() != "Reached" || !strings.Contains(held.GetMessage(), "ThrottleWriteBps of vda 1M/s") || ratio < 0.5 {
			return fmt.Errorf("%s: %s (use is %.2f of the limit)", held.GetReason(), held.GetMessage(), ratio)
		}
		return nil
	})
	if got, err := valueAfter(metrics(t), "qos_class_held{"+labels); err != nil || got != 1 {
		t.Errorf("qos_class_held is %v, %v; want 1", got, err)
	}
	t.Logf("held: %s (use is %.2f of the limit)", n.held(t).GetMessage(), use())

	ctx, cancel := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		unlimit(ctx, filepath.Join(n.ioCgroup(c.cgroup()), "io.max"), deviceNumber(t, "/dev/vda")+" wbps=max")
	})
	defer other.Wait()
	defer cancel()
	eventually(t, "the limit is not held", func() error {
		held := n.held(t)
		if held.GetReason() != "LimitNotHeld" || !strings.Contains(held.GetMessage(), "ThrottleWriteBps of vda is exceeded by ") {
			return fmt.Errorf("%s: %s (use is %.2f of the limit)", held.GetReason(), held.GetMessage(), use())
		}
		return nil
	})
	if got, err := valueAfter(metrics(t), "qos_class_held{"+labels); err != nil || got != 0 {
		t.Errorf("qos_class_held is %v, %v; want 0", got, err)
	}
	t.Logf("not held: %s (use is %.2f of the limit)", n.held(t).GetMessage(), use())
}

// unlimit writes a text to a file repeatedly, until `ctx` ends.
func unlimit(ctx context.Context, file, text string) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = os.WriteFile(file, []byte(text), 0) // fails only if the container is gone
		}
	}
}

// held returns the condition Held of class throttled.
func (n *node) held(t *testing.T) *qos.Condition {
	t.Helper()
	if conditions := n.class(t, blockio, "throttled").GetConditions(); len(conditions) > 0 {
		return conditions[0]
	}
	return &qos.Condition{Healthy: true, Reason: "none"}
}
