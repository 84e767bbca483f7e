// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"path"
	"testing"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestAContainerHasTheIOLatencyOfItsClassUntilItLeavesTheClass also lets another program change the latency. A resize
// then writes what the runtime has stored.
func TestAContainerHasTheIOLatencyOfItsClassUntilItLeavesTheClass(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	r.mustRun(t, r.pod(t, "first", "")) // its cgroup shows that the kernel has io.latency
	r.mustConfigure(t, changed("fast: [{Devices: [/dev/vda]", "fast: [{Devices: [/dev/vda], Latency: 10ms"))
	r.world.Expect.Limits[disks]["fast"] = map[string]string{"io.max": "254:0 rbps=50000000", "io.latency": "254:0 target=10000"}
	id := r.mustRun(t, r.pod(t, "a", "blockio=fast"))
	r.world.Hold(t)

	c := r.container(t, id)
	if got := c.Spec.Unified["io.latency"]; got != "254:0 target=10000" {
		t.Errorf("the runtime has stored the io.latency %q", got)
	}

	must(t, r.host.Cgroups().WriteFile(path.Join("/sys/fs/cgroup", c.Spec.CgroupsPath, "io.latency"), []byte("254:0 target=500")))
	r.node.Repair(t.Context())
	r.world.Hold(t)

	for _, class := range []string{"slow", "fast", ""} {
		if err := r.node.Update(t.Context(), r.subject(t, id), map[string]string{"blockio": class}); err != nil {
			t.Fatalf("the change to class %q failed: %v", class, err)
		}
		r.world.Hold(t)
		r.resize(t, id)
		r.world.Hold(t)
	}
}
