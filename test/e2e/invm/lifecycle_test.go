// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// wantReportedIsReal checks for all containers that the kernel has them in the class that the plugin reports.
func (n *node) wantReportedIsReal(t testing.TB, list *qos.ListAssignmentsResponse) {
	t.Helper()
	for _, p := range list.GetPods() {
		for _, c := range p.GetContainers() {
			real := &container{pod: &pod{node: n, config: podConfig(p.GetName(), nil)}, id: c.GetId()}
			for _, a := range c.GetQosResources() {
				if a.GetName() != rdt {
					continue
				}
				if _, err := os.Stat(n.ioCgroup(real.cgroup())); err != nil {
					continue // created, but not started
				}
				if err := real.inGroup(groupOf(a.GetClass())); err != nil {
					t.Errorf("%s container %s is reported in class %q: %v", p.GetName(), c.GetName(), a.GetClass(), err)
				}
			}
		}
	}
}

// ranBefore: a pod that was created before the plugin started has no class yet. After the plugin has registered, it moves
// the pod to the requested class, and then reports the pod in this class.
func ranBefore(t *testing.T, n *node, early *pod) {
	eventually(t, "a container that ran before the plugin is in the class that it requests", func() error {
		if a := n.assignment(t, early, "main", rdt); a.GetClass() != "silver" {
			return fmt.Errorf("reported %v", a)
		}
		return nil
	})

	list := n.assignments(t)
	if len(list.GetPods()) != 1 || list.GetPods()[0].GetUid() != early.config.Metadata.Uid {
		t.Fatalf("the assignments are %v, want those of the only pod", list)
	}

	n.wantReportedIsReal(t, list)
	// On a busy machine, resources can be unavailable until the plugin tries again.
	eventually(t, "all resources are available", func() error {
		for _, resource := range n.status(t).GetUnavailableResources() {
			if n.cgroupV2 || resource.GetName() != podBlockio {
				return fmt.Errorf("%s is unavailable: %s", resource.GetName(), resource.GetMessage())
			}
		}
		return nil
	})
}

// changedClass: an update changes all classes that it names, or none if one of them does not exist. A restart of the
// plugin keeps the changed classes.
func changedClass(t *testing.T, p *pod) {
	n := p.node
	c := p.run(t, spec{name: "changed", args: []string{"spawn", "2"}})
	c.wantGroup(t, "qos-silver")
	p.update(t, "changed", "rdt=gold,blockio=slower")
	c.wantGroup(t, "qos-gold")
	slower := ioLimits{deviceNumber(t, "/dev/vda"): {"rbps": "700000"}}
	wantLimits(t, n.limits(t, c.cgroup()), slower)
	n.wantAssignment(t, p, "changed", &qos.Assignment{Name: rdt, Class: "gold", Source: qos.Source_SOURCE_UPDATE})

	_, err := output("qos-nri-plugin", "update", p.name(), "changed", "rdt=silver,blockio=none")
	if err == nil || !strings.Contains(err.Error(), `class "none" of k8s.io/blockio`) {
		t.Errorf("an update to an unknown class returned %v, want an error that names the class", err)
	}

	c.wantGroup(t, "qos-gold")
	wantLimits(t, n.limits(t, c.cgroup()), slower)

	// The plugin's checkpoint, which has the changed class, outlives the plugin's process. Until the new process has
	// read the kernel's state, it reports the class in which the container was created.
	n.restartPlugin(t)
	eventually(t, "the changed class is reported after a restart", func() error {
		if a := n.assignment(t, p, "changed", rdt); a.GetClass() != "gold" || a.GetSource() != qos.Source_SOURCE_UPDATE {
			return fmt.Errorf("reported %v", a)
		}
		return nil
	})

	c.wantGroup(t, "qos-gold")
}

// restartPlugin kills the plugin as a crash would, and starts it again.
func (n *node) restartPlugin(t testing.TB) {
	t.Helper()
	n.plugin.end(t, syscall.SIGKILL)
	n.startPlugin(t)
}

// restarts restarts plugin and runtime, with a container that runs through all restarts.
func restarts(t *testing.T, p *pod) {
	c := p.run(t, spec{name: "kept"})
	for _, restart := range []struct {
		name string
		run  func(*testing.T, *pod)
	}{
		{"a killed plugin comes back with the same state", pluginRestart},
		{"a restarted runtime gets the same state", runtimeRestart},
		{"running containers keep their classes when the plugin ends", pluginEnd},
	} {
		t.Run(restart.name, func(t *testing.T) { restart.run(t, p) })
		c.wantGroup(t, "qos-gold")
		wantLimits(t, p.node.limits(t, c.cgroup()), throttled(t))
	}

	if got := c.exec(t, "cat", "/proc/self/cpu_resctrl_groups"); !strings.HasPrefix(got, "res:qos-gold\n") {
		t.Errorf("a process exec'd after the restarts is in group %q, want qos-gold", got)
	}
}

// pluginRestart: the containers "kept" and "gone" have the two slots of gold.
func pluginRestart(t *testing.T, p *pod) {
	n := p.node
	gone := p.admit(t, spec{name: "gone"})
	before := n.assignments(t)
	before.Refusals = nil // refusals are not stored
	n.restartPlugin(t)
	after := n.assignments(t)
	if diff := cmp.Diff(before, after, protocmp.Transform()); diff != "" {
		t.Errorf("assignments after the restart (-before +after):\n%s", diff)
	}

	n.wantReportedIsReal(t, after)

	// Slots that were in use before the restart are still in use. A container that ends while the plugin does not run
	// frees its slot.
	_, err := p.create(t, spec{name: "next"})
	wantRefusal(t, err, n.kind.containerRefused+`pod default/shared container next: class "gold" of k8s.io/rdt is full: 2 of 2 in use, all by this pod itself, which requests more; `+
		`available: silver, bronze`)
	n.plugin.end(t, syscall.SIGKILL)
	gone.remove(t)
	n.startPlugin(t)
	p.admit(t, spec{name: "next"})
}

// runtimeRestart: while the runtime is gone, the plugin reports that it is not registered. After the return of the runtime, all containers
// have the same assignments as before.
func runtimeRestart(t *testing.T, p *pod) {
	n := p.node
	if n.kind.leavesRefused {
		t.Skip("this runtime lists pods after its restart whose creation the plugin had refused")
	}

	before := n.assignments(t)
	n.stopRuntime(t)
	eventually(t, "the plugin sees that the runtime is gone", func() error {
		if n.status(t).GetRuntime().GetRegistered() {
			return errors.New("still registered")
		}
		return nil
	})

	n.startRuntime(t)
	n.waitRegistered(t)
	after := n.assignments(t)
	if diff := cmp.Diff(before, after, protocmp.Transform()); diff != "" {
		t.Errorf("assignments after the restart (-before +after):\n%s", diff)
	}

	n.wantReportedIsReal(t, after)
	p.run(t, spec{name: "later"}).wantGroup(t, "qos-bronze")
}

// pluginEnd ends the plugin with SIGTERM, as an upgrade does.
func pluginEnd(t *testing.T, p *pod) {
	n := p.node
	n.plugin.end(t, syscall.SIGTERM)
	if !n.plugin.cmd.ProcessState.Success() {
		t.Errorf("after SIGTERM, the plugin ended with %s, want exit status 0", n.plugin.cmd.ProcessState)
	}
	n.startPlugin(t)
}

// changedFiles: a change of a class file is applied to groups and running containers. A wrong file changes nothing and is reported.
func changedFiles(t *testing.T, p *pod) {
	n := p.node
	c := p.run(t, spec{name: "reloaded"})
	writeClassFile(t, strings.Replace(classFile, "ThrottleReadBps: 700k", "ThrottleReadBps: 1500k", 1))
	faster := ioLimits{deviceNumber(t, "/dev/vda"): {"rbps": "1500000"}}
	eventually(t, "the new throttle is in place", func() error { return n.hasLimits(t, c.cgroup(), faster) })

	before := schemataLines(t, "qos-silver")
	writeClassFile(t, strings.Replace(classFile, `mbAllocation: ["50%"]`, `mbAllocation: ["150%"]`, 1))
	eventually(t, "the wrong file is reported", func() error {
		if n.status(t).GetConfig().GetLastError() == "" {
			return errors.New("the status has no error")
		}
		return nil
	})

	t.Logf("reported: %s", n.status(t).GetConfig().GetLastError())
	if diff := cmp.Diff(before, schemataLines(t, "qos-silver")); diff != "" {
		t.Errorf("a wrong class file changed a group (-before +after):\n%s", diff)
	}

	wantLimits(t, n.limits(t, c.cgroup()), faster)
	writeClassFile(t, classFile)
	eventually(t, "the first configuration is back", func() error {
		if got := n.limits(t, c.cgroup()); cmp.Equal(got, faster) || n.status(t).GetConfig().GetLastError() != "" {
			return fmt.Errorf("throttles %v", got)
		}
		return nil
	})
}

// useClassFile replaces the class file until the end of the test.
func useClassFile(t testing.TB, content string) {
	t.Helper()
	writeClassFile(t, content)
	t.Cleanup(func() { writeClassFile(t, classFile) })
}

// writeClassFile replaces the class file atomically, as a ConfigMap's update does.
func writeClassFile(t testing.TB, content string) {
	t.Helper()
	must(t, os.MkdirAll(configDir, 0o755))
	temporary := filepath.Join(configDir, ".classes.yaml.new")
	mustWrite(t, temporary, content)
	must(t, os.Rename(temporary, filepath.Join(configDir, "classes.yaml")))
}
