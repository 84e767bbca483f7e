// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const crioOwnFile = "/etc/crio/crio.conf.d/20-own.conf"

// crioOwn returns configuration files, by path, with which CRI-O has RDT and block I/O classes of its own.
func crioOwn() map[string]string {
	return map[string]string{
		crioOwnFile: `
[crio.runtime]
rdt_config_file = "/etc/crio/rdt.yaml"
blockio_config_file = "/etc/crio/blockio.yaml"
`,
		"/etc/crio/rdt.yaml": `
partitions:
  all:
    l3Allocation: "100%"
    mbAllocation: ["100%"]
    classes:
      batch: {l3Allocation: "50%", mbAllocation: ["50%"]}
`,
		"/etc/crio/blockio.yaml": `
Classes:
  lazy: [{Devices: [/dev/vdb], ThrottleReadBps: 900k}]
`,
	}
}

// ownClasses: when CRI-O starts with an RDT configuration of its own, it removes all groups, including those of other
// programs. The plugin creates its groups again, and moves the containers back. The plugin reports containers that are
// in classes of CRI-O. Foreign groups are lost, so this case is the last one.
func ownClasses(t *testing.T, p *pod) {
	n := p.node
	c := p.run(t, spec{name: "main"})
	before := schemataLines(t, "qos-gold")
	for path, content := range crioOwn() {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		mustWrite(t, path, content)
	}

	n.foreign = nil
	n.stopRuntime(t)
	n.launchRuntime(t)
	eventually(t, "CRI-O has removed all groups", func() error { return gone(filepath.Join(resctrlRoot, "theirs")) })
	began := time.Now()
	eventually(t, "the class has its group again, with its processes", func() error {
		if got := schemataLinesOr(t, "qos-gold"); fmt.Sprint(got) != fmt.Sprint(before) {
			return fmt.Errorf("schemata %q", got)
		}
		return c.inGroup("qos-gold")
	})

	t.Logf("the group was restored %s after CRI-O had removed it", time.Since(began).Round(time.Millisecond))
	n.waitRuntime(t)
	n.waitRegistered(t)
	n.holds(t)

	printed, err := output("qos-nri-plugin", "check", "--runtime-endpoint", "unix://"+n.kind.socket, "--nri-socket", nriSocket)
	if err == nil {
		t.Error("check finds no problem with CRI-O's own configuration of RDT, want an error")
	}

	for _, want := range []string{"rdt_config_file", "blockio_config_file"} {
		if !strings.Contains(printed, want) {
			t.Errorf("check does not name %s of CRI-O:\n%s", want, printed)
		}
	}

	own := n.runPod(t, "own", map[string]string{
		"rdt.resources.beta.kubernetes.io/container.own":     "batch",
		"blockio.resources.beta.kubernetes.io/container.own": "lazy",
		keyOf("own"): "rdt=,blockio=",
	}).run(t, spec{name: "own"})

	own.wantGroup(t, "batch")
	wantLimits(t, n.limits(t, own.cgroup()), ioLimits{deviceNumber(t, "/dev/vdb"): {"rbps": "900000"}})
	eventually(t, "the classes of CRI-O are reported", func() error {
		printed, err := output("qos-nri-plugin", "assignments")
		for _, want := range []string{"<resctrl group batch>", "<limits of " + deviceNumber(t, "/dev/vdb") + " (vdb)>"} {
			if err == nil && !strings.Contains(printed, want) {
				err = fmt.Errorf("%q is not reported:\n%s", want, printed)
			}
		}
		return err
	})

	must(t, os.Remove(crioOwnFile))
}

// requiredKey is the annotation with which a pod requires plugins.
const requiredKey = "required-plugins.noderesource.dev"

// requiredPlugin tests a pod that requires the plugin. While the plugin is not registered, the pod's containers are not
// created. When the plugin hangs, the first creation waits for the runtime's timeout, and later creations are refused.
// If the first creation succeeds, the container starts in its class.
func requiredPlugin(t *testing.T, shared *pod) {
	n := shared.node
	annotations := requests()
	annotations[requiredKey] = "[ qos-nri-plugin ]"
	p := n.runPod(t, "requiring", annotations)
	missing := func() error {
		_, err := p.create(t, spec{name: "changed"})
		if err == nil {
			t.Fatal("a container that requires the plugin was created without the plugin")
		}
		if !strings.Contains(err.Error(), `required plugin "qos-nri-plugin" not present`) {
			return err // the runtime has not noticed yet that the plugin has gone
		}
		return nil
	}

	n.plugin.end(t, syscall.SIGKILL)
	eventually(t, "a container is refused because the plugin is away", missing)
	n.startPlugin(t)
	p.run(t, spec{name: "main", args: showGroup()}).wantFirstGroup(t, "qos-gold")

	must(t, n.plugin.cmd.Process.Signal(syscall.SIGSTOP))
	passed, err := p.create(t, spec{name: "one", args: showGroup()})
	t.Logf("the first creation while the plugin hangs returned %v", err)
	eventually(t, "the next creation is refused", missing)
	must(t, n.plugin.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "the plugin is back", func() error {
		back, err := p.create(t, spec{name: "changed"})
		if err == nil {
			back.remove(t)
		}
		return err
	})
	if err == nil {
		t.Cleanup(func() { passed.remove(t) })
		passed.start(t)
		passed.wantFirstGroup(t, "qos-gold")
	}
}
