// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// switchWithPods switches the node from DRA to device plugins and back while pods run, as docs/dra.md says. In between,
// it starts each program while the other still offers the classes. Gold always has the capacity 2.
func switchWithPods(t *testing.T, n *node, p *draPrograms) {
	shim := n.process("device-plugins", "setpriv", "--bounding-set=-all", "--inh-caps=-all", n.program("qos-kubelet-shim"),
		"--node-name", n.name, "--publish=device-plugin", "--grace=5s", "--metrics-address=127.0.0.1:9423")
	t.Cleanup(func() { must(t, shim.end(syscall.SIGTERM)) })
	n.slots(t, "blockio-gold=2")
	gold := n.asks("gold")
	n.runClaimed(t, "by-claim", "exactly: {deviceClassName: blockio.gold}", "main")
	n.running(t, "by-claim")
	byClaim := n.sameContainers(t, "by-claim")

	// From DRA to device plugins.
	shim.mustStart(t)
	logged(t, shim, "qos-dra-driver offers the classes of the node")
	p.restartDriver(t, "--retire")
	n.offers(t, "blockio.gold", "2", "1") // by-claim has the other slot
	n.noDevices(t)
	n.runPods(t, pod{name: "by-plugin", classes: gold})
	n.inClass(t, "by-plugin", "gold")
	n.inClass(t, "by-claim", "gold")
	byPlugin := n.sameContainers(t, "by-plugin")
	n.createPods(t, pod{name: "waits", classes: gold})
	n.pending(t, "waits", "Insufficient qos.noderesource.dev/blockio.gold")
	byClaim("the switch to device plugins")
	n.delete(t, "by-claim") // ends only if the retiring driver serves its claim
	n.running(t, "waits")
	n.delete(t, "waits")

	// And back.
	p.restartDriver(t)
	logged(t, p.driver, "the node still offers qos.noderesource.dev/blockio.")
	n.noDevices(t)
	shim.mustEnd(t, syscall.SIGTERM)
	n.slots(t, "blockio-gold=1") // by-plugin has the other slot
	n.restartKubelet(t)
	p.back(t)
	n.runPods(t, pod{name: "again-by-dra", classes: gold})
	n.inClass(t, "again-by-dra", "gold")
	n.createPods(t, pod{name: "waits", classes: gold})
	n.pending(t, "waits", "cannot allocate all claims")
	n.inClass(t, "by-plugin", "gold")
	byPlugin("the switch to DRA")
	n.delete(t, "by-plugin")
	n.running(t, "waits")
	n.slots(t, "blockio-gold=2")
}

// restartDriver ends the driver, and starts it with additional flags.
func (p *draPrograms) restartDriver(t *testing.T, flags ...string) {
	t.Helper()
	p.driver.mustEnd(t, syscall.SIGTERM)
	p.driver.args = append(slices.Clone(p.usual), flags...)
	p.driver.mustStart(t)
}

// logged waits until a program has logged a text.
func logged(t *testing.T, p *process, text string) {
	t.Helper()
	until(t, p.name+" logs "+text, func() (bool, string) {
		log, err := os.ReadFile(p.log)
		must(t, err)
		return strings.Contains(string(log), text), string(log[max(0, len(log)-500):])
	})
}

// noDevices waits until the ResourceSlice of the node has no devices.
func (n *node) noDevices(t *testing.T) {
	t.Helper()
	until(t, "the ResourceSlice is empty", func() (bool, string) {
		seen, err := n.try("get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].name}")
		return err == nil && seen == "", seen
	})
}
