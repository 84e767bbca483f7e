// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

// The speed of the lab's disk.
const (
	labIOPS = 400
	labBPS  = 16 << 20
)

// TestLab measures the effects of classes, in a VM with cgroup v2 and in a VM with cgroup v1. QEMU limits the speed of
// the disk. If QOS_LAB_OUTPUT names a directory, the results are written into it, as tables and as pictures.
// QOS_LAB_SECONDS is the duration of one measurement.
func TestLab(t *testing.T) {
	if testing.Short() {
		t.Skip("the lab runs without -short, each night")
	}
	rig := prepare(t)
	var group errgroup.Group
	for _, cgroup := range []string{"v2", "v1"} {
		m := machine{
			name: "lab-cgroup" + cgroup, test: "TestLab", vendor: "intel", cgroup: cgroup,
			cpus: "2", // both share an L3 cache
			// The disk never waits for the host's disk.
			disk:        fmt.Sprintf("cache=unsafe,throttling.iops-total=%d,throttling.bps-total=%d", labIOPS, labBPS),
			environment: []string{fmt.Sprint("QOS_LAB_IOPS=", labIOPS), fmt.Sprint("QOS_LAB_BPS=", labBPS)},
		}
		group.Go(func() error {
			t.Run(m.name, func(t *testing.T) { rig.boot(t, m) })
			return nil
		})
	}

	must(t, group.Wait())

	scenes, err := lab.Load(filepath.Join(rig.share, "lab"))
	must(t, err)
	for _, s := range scenes {
		fmt.Println("\n" + s.Text())
	}

	if output := os.Getenv("QOS_LAB_OUTPUT"); output != "" {
		must(t, lab.Write(output, scenes))
	}
}
