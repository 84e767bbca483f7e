// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// withoutGold returns the class files of machineFiles without the classes gold and fast.
func withoutGold() string {
	return changed("{name: gold, capacity: 2}, ", "", `classes: {gold: {l3Allocation: "100%"}}`, "classes: {}",
		"{name: fast, capacity: 2}, ", "", "fast: [{Devices: [/dev/vda], ThrottleReadBps: 50M}]\n", "")
}

// TestAContainerIsStartedAgainInItsDrainingClass ends a container whose classes are removed before or after its end. The kubelet starts
// the container again.
func TestAContainerIsStartedAgainInItsDrainingClass(t *testing.T) {
	for name, crash := range map[string]func(t *testing.T, p *populated){
		"removed before the crash": func(t *testing.T, p *populated) {
			p.mustConfigure(t, withoutGold())
			p.mustStop(t, p.gold)
		},
		"removed after the crash": func(t *testing.T, p *populated) {
			p.mustStop(t, p.gold)
			p.mustConfigure(t, withoutGold())
		},
		"removed with their resource": func(t *testing.T, p *populated) {
			p.mustConfigure(t, without(t, groups))
			p.mustStop(t, p.gold)
		},
		"crashed twice": func(t *testing.T, p *populated) {
			p.mustConfigure(t, withoutGold())
			pod := p.podOf(t, p.gold)
			p.mustStop(t, p.gold)
			p.mustStop(t, p.mustRun(t, pod))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPopulated(t)
			pod := p.podOf(t, p.gold)
			crash(t, p)
			p.world.Expect.Limits = nil // no class file has the values of the draining classes any more
			p.mustRelease(t)
			p.node.Repair(t.Context())

			again := p.mustRun(t, pod)
			p.world.Hold(t)
			p.wantReported(t, again, groups, "gold/pod")
			p.wantReported(t, again, disks, "fast/pod")
			if got := p.host.tasks(t, "qos-gold"); len(got) == 0 {
				t.Error("no thread of the container is in the group of its class")
			}

			// the class ends with the pod
			must(t, p.StopPod(t.Context(), pod))
			p.mustRelease(t)
			p.world.Hold(t)
			if p.host.exists(resctrl.MountPoint + "/qos-gold") {
				t.Error("the pod has ended, but the group of its class exists")
			}
		})
	}
}

func TestADrainingClassIsRefusedToContainersThatDoNotHaveIt(t *testing.T) {
	p := newPopulated(t)
	p.mustConfigure(t, withoutGold())
	const want = `class "gold" of k8s.io/rdt does not exist on this node; available: silver, bronze; the class was removed from the class ` +
		`files, and only pods that already have it keep it (requested by annotation qos.noderesource.dev/pod)`
	if _, err := p.run(t, p.pod(t, "late", "rdt=gold")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}

	// Another container of the pod that has the class requests it for the first time.
	second := nriruntime.ContainerConfig{Name: "second"}
	if _, err := p.CreateContainer(t.Context(), p.podOf(t, p.gold), second); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error of another container of the pod is %v, want %s", err, want)
	}
}

// TestADrainingClassOutlivesARestartOfThePlugin restarts the plugin while a class drains. Its container then ends, and starts again.
func TestADrainingClassOutlivesARestartOfThePlugin(t *testing.T) {
	p := newPopulated(t)
	pod := p.podOf(t, p.gold)
	text := changed("{name: gold, capacity: 2}, ", "", `classes: {gold: {l3Allocation: "100%"}}`, "classes: {}")
	p.mustConfigure(t, text)
	p.startNewWith(t, text)
	p.mustStop(t, p.gold)
	// The class stays although no container has it, because the pod still runs, and the kubelet may start the container again.
	p.mustRelease(t)

	again := p.mustRun(t, pod)
	p.wantReported(t, again, groups, "gold/pod")
	p.world.Hold(t)
}

// TestARemovedGroupEndsInThePassThatFindsItEmpty puts a process that is in no container into the group of a class, and removes the class.
// The group must end in the first pass of the reconciler after the end of the process: an uninstall removes the classes, and waits for two
// passes only.
func TestARemovedGroupEndsInThePassThatFindsItEmpty(t *testing.T) {
	const stray = 99999
	p := newPopulated(t)
	p.host.Resctrl().AddTask(stray, "qos-bronze")
	p.mustConfigure(t, without(t, groups))
	if !p.host.exists(resctrl.MountPoint + "/qos-bronze") {
		t.Fatal("a group with a process was removed")
	}

	p.host.Resctrl().Exit(stray)
	p.node.Repair(t.Context())
	if p.host.exists(resctrl.MountPoint + "/qos-bronze") {
		t.Error("the group is empty, and exists after the pass")
	}
}
