// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"testing"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// expect sets the io.max that the invariants expect for a class of disks.
func (r *machineRig) expect(class, ioMax string) {
	r.world.Expect.Limits[disks][class] = map[string]string{"io.max": ioMax}
}

// TestClassesFollowADiskThatIsRemovedAndAddedAgain removes vda, the only disk of class fast. Until the next repair, no container with
// class fast can run. After the repair, the class limits nothing. Class slow limits vda and vdb.
func TestClassesFollowADiskThatIsRemovedAndAddedAgain(t *testing.T) {
	p := newPopulated(t)
	p.host.Cgroups().RemoveDisk("vda")
	early := p.pod(t, "before-repair", "blockio=fast")
	if _, err := p.run(t, early); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("error is %v, want that there is no such device", err)
	}

	if err := p.RemovePod(t.Context(), early); err != nil {
		t.Error(err)
	}

	p.node.Repair(t.Context())
	p.expect("fast", "")
	p.expect("slow", "254:16 rbps=1000000")
	p.world.Hold(t)
	p.mustStop(t, p.mustRun(t, p.pod(t, "after-repair", "blockio=fast")))
	for _, class := range []string{"slow", "", "fast"} {
		if err := p.update(t, p.gold, "blockio", class); err != nil {
			t.Errorf("the change to class %q failed: %v", class, err)
		}
		p.world.Hold(t)
	}

	p.host.Cgroups().AddDisk("vda", 254, 0)
	p.node.Repair(t.Context())
	p.world.Expect.Limits[disks] = limits()
	p.world.Hold(t)
	p.mustConfigure(t, machineFiles)
	p.world.Hold(t)
}

// TestPatternsMatchAllKindsOfDevices uses classes with a partition, a logical volume, and patterns that match no disk. A class with such a
// pattern limits nothing, and is reported as degraded.
func TestPatternsMatchAllKindsOfDevices(t *testing.T) {
	cgroups := simcgroup.New()
	cgroups.AddDisk("dm-0", 253, 0)
	cgroups.AddSymlink("/dev/mapper/data", "../dm-0")
	r := newMachineRig(t, cgroups)
	cgroups.AddPartition("vdb", "vdb1", 254, 17)
	r.mustConfigure(t, changed("fast: [{Devices: [/dev/vda]", "fast: [{Devices: [/dev/mapper/data]", `slow: [{Devices: ["/dev/vd[ab]"]`, "slow: [{Devices: [/dev/vdb1]"))
	r.expect("fast", "253:0 rbps=50000000")
	r.expect("slow", "254:16 rbps=1000000")
	r.mustRun(t, r.pod(t, "volume", "blockio=fast"))
	r.mustRun(t, r.pod(t, "partition", "blockio=slow"))
	r.world.Hold(t)
	r.mustConfigure(t, changed("/dev/vda]", `"/dev/nvme*"]`, `"/dev/vd[ab]"`, `"/dev/null"`))
	r.expect("fast", "")
	r.expect("slow", "")
	r.mustRun(t, r.pod(t, "nothing", "blockio=slow"))
	r.world.Hold(t)
	for _, resource := range r.node.Status().Resources {
		if resource.Name == disks && len(resource.Degraded) != 2 {
			t.Errorf("the degraded classes are %v, want two", resource.Degraded)
		}
	}
}

// TestAContainerWithoutTheIOControllerIsReportedWithoutItsClass disables the controller in cgroup.subtree_control of
// one pod, which removes all limits below.
func TestAContainerWithoutTheIOControllerIsReportedWithoutItsClass(t *testing.T) {
	p := newPopulated(t)
	control := p.podDir(t, p.gold) + "/cgroup.subtree_control"
	must(t, p.host.Machine.WriteFile(control, []byte("-io")))

	if p.update(t, p.gold, "blockio", "slow") == nil {
		t.Error("the update succeeded")
	}

	p.node.Repair(t.Context())
	p.world.Hold(t)
	p.wantReported(t, p.gold, disks, "/adopted")
	p.wantReported(t, p.slow, disks, "slow/pod")
	must(t, p.host.Machine.WriteFile(control, []byte("+io")))

	p.node.Repair(t.Context())
	p.world.Hold(t)
	p.wantReported(t, p.gold, disks, "fast/pod")
}

// podDir returns the directory of the cgroup of a container's pod.
func (p *populated) podDir(t *testing.T, id string) string {
	t.Helper()
	c := p.container(t, id)
	return "/sys/fs/cgroup" + c.Spec.CgroupsPath[:strings.LastIndex(c.Spec.CgroupsPath, "/")]
}
