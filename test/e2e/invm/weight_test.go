// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// weights: the status reports that no disk supports weights. Then a disk gets the bfq scheduler, and the plugin detects
// the scheduler when it reads the class files again. From then on, containers get weights for this disk.
func weights(t *testing.T, p *pod) {
	n := p.node
	n.wantWeightsEffective(t, false)
	initial := n.schedule(t, "bfq")
	n.wantWeightsEffective(t, true)

	c := p.run(t, spec{name: "weighed", args: []string{"show", filepath.Join("/sys/fs/cgroup", n.bfqFile())}})
	want := fmt.Sprintf("default 400\n%s 200", deviceNumber(t, "/dev/vdb"))
	if got := c.printed(t); got != want {
		t.Errorf("weights before the first instruction are %q, want %q", got, want)
	}

	if n.cgroupV2 {
		const want = "default 3940\n" // 400 in the range 10 to 1000, mapped to the range 1 to 10000
		if got := mustRead(t, filepath.Join(n.ioCgroup(c.cgroup()), "io.weight")); got != want {
			t.Errorf("io.weight is %q, want %q", got, want)
		}
	}

	n.wantAssignment(t, p, "weighed", &qos.Assignment{
		Name: blockio, Class: "weighted", Source: qos.Source_SOURCE_CONTAINER, RequestedBy: keyOf("weighed"),
	})

	n.schedule(t, initial)
	n.wantWeightsEffective(t, false)
}

// schedule sets the I/O scheduler of a disk, makes the plugin read its class files again, and returns the previous
// scheduler.
func (n *node) schedule(t testing.TB, scheduler string) (before string) {
	t.Helper()
	const file = "/sys/block/vdb/queue/scheduler"
	active := regexp.MustCompile(`\[(.*)\]`).FindStringSubmatch(mustRead(t, file))
	if len(active) != 2 {
		t.Fatalf("%s names no scheduler", file)
	}
	mustWrite(t, file, scheduler)
	n.reread(t)
	return active[1]
}

// reread makes the plugin read its class files again. The plugin then also reads the I/O schedulers of the disks.
func (n *node) reread(t testing.TB) {
	t.Helper()
	must(t, n.plugin.cmd.Process.Signal(syscall.SIGHUP))
}

// bfqFile returns the path of the file with the weights of a cgroup for the bfq scheduler. The path is relative to the
// mount point of the cgroups.
func (n *node) bfqFile() string {
	if n.cgroupV2 {
		return "io.bfq.weight"
	}
	return "blkio/blkio.bfq.weight_device"
}

// wantWeightsEffective waits until the status reports whether weights are effective, in the condition of the resource
// and in the class weighted.
func (n *node) wantWeightsEffective(t testing.TB, want bool) {
	t.Helper()
	eventually(t, "the status says whether weights are effective", func() error {
		condition, class := n.condition(t, blockio, "WeightsEffective"), n.class(t, blockio, "weighted")
		whole := !strings.Contains(class.GetDegraded(), "has no effect")
		if condition == nil || class == nil || condition.GetHealthy() != want || whole != want {
			return fmt.Errorf("want %v: the condition is %v, and the class is %v", want, condition, class)
		}
		return nil
	})
}
