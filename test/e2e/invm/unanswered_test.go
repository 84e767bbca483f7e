// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"strings"
	"syscall"
	"testing"
)

// requestTimeout is the timeout for the plugin in the runtime's configuration.
const requestTimeout = `plugin_request_timeout = "60s"`

// unansweredHook: containerd disconnects a plugin that does not answer a hook in time. The creation fails, since the plugin is also a
// validator. Further containers start without their class, until the plugin is back and moves them.
func unansweredHook(t *testing.T, p *pod) {
	n := p.node
	n.reconfigureRuntime(t, requestTimeout, `plugin_request_timeout = "10s"`)
	defer n.reconfigureRuntime(t, "", "")
	before := n.status(t).GetRuntime().GetRegisteredAt().AsTime()

	must(t, n.plugin.cmd.Process.Signal(syscall.SIGSTOP))
	resume := func() { must(t, n.plugin.cmd.Process.Signal(syscall.SIGCONT)) }
	defer resume()
	if _, err := p.create(t, spec{name: "main"}); err == nil || !strings.Contains(err.Error(), "validator plugin 10-qos-nri-plugin failed") {
		t.Errorf("a creation whose hook the plugin does not answer returned %v; want an error of the validator", err)
	}

	c := p.run(t, spec{name: "main", attempt: 1})
	c.wantGroup(t, "")

	resume()
	eventually(t, "the container is in its class", func() error { return c.inGroup("qos-gold") })
	if after := n.status(t).GetRuntime().GetRegisteredAt().AsTime(); !after.After(before) {
		t.Errorf("the plugin has been registered since %s; want a new registration after the hook that it did not answer", after)
	}
}

// reconfigureRuntime restarts the runtime with a changed configuration: the original configuration, in which the text is
// replaced. If `text` is empty, the runtime gets the original configuration back.
func (n *node) reconfigureRuntime(t *testing.T, text, replacement string) {
	t.Helper()
	n.stopRuntime(t)
	n.kind.configure(t, text, replacement)
	n.startRuntime(t)
	n.waitRegistered(t)
}
