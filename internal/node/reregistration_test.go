// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// withoutResource removes a resource from the class files.
func withoutResource(name string) string {
	var kept []string
	skip := false
	for line := range strings.Lines(files) {
		if strings.HasPrefix(line, "- name: ") {
			skip = strings.TrimSpace(strings.TrimPrefix(line, "- name: ")) == name
		}
		if !skip {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestClassesAreTheSameIfThePluginRegistersAgainDuringAnOperation lets the runtime register the plugin again before
// each single call into the machine that an operation makes. The outcome must be the same as without that registration.
func TestClassesAreTheSameIfThePluginRegistersAgainDuringAnOperation(t *testing.T) {
	configure := func(text string) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			t.Helper()
			f.mustConfigure(t, text)
			f.Reconcile(t.Context())
		}
	}
	update := func(t *testing.T, f *fixture) {
		t.Helper()
		f.mustUpdate(t, qos.Subject{PodUID: "uid-default", Container: "main"}, map[string]string{cache: "silver", disk: "slow"})
	}
	for name, operation := range map[string]func(*testing.T, *fixture){
		"a resource with a default class is removed": configure(withoutResource(cache)),
		"a resource of pod scope is removed":         configure(withoutResource(net)),
		"a class is removed":                         configure(strings.ReplaceAll(files, "{name: gold, capacity: 1}, ", "")),
		"the default class changes":                  configure(strings.ReplaceAll(files, "defaultClass: bronze", "defaultClass: silver")),
		"there is no default class any more":         configure(strings.ReplaceAll(files, "  defaultClass: bronze\n", "")),
		"classes are changed":                        update,
	} {
		t.Run(name, func(t *testing.T) {
			want, steps := registeredAt(t, 0, operation)
			for step := 1; step <= steps; step++ {
				if got, _ := registeredAt(t, step, operation); !cmp.Equal(want, got) {
					t.Errorf("registered again before step %d of %d (-without +with):\n%s", step, steps, cmp.Diff(want, got))
				}
			}
		})
	}
}

// registeredAt runs an operation on a node with four containers. Before the given step of the operation, the runtime
// registers the plugin again. registeredAt returns the classes that the node reports and those that are enforced, and
// the number of steps.
func registeredAt(t *testing.T, step int, operation func(*testing.T, *fixture)) (outcome map[string]string, steps int) {
	t.Helper()
	f := newFixture(t)
	pods := map[string]classes.Holder{
		"default": pod("default", nil), "before": pod("before", nil), "gold": pod("gold", requesting(cache+"=gold,"+net+"=high")),
		"changed": pod("changed", nil),
	}
	before := container("c-before")
	before.PID = 1
	var sandboxes []classes.Holder
	for _, name := range []string{"default", "before", "gold", "changed"} {
		f.mustRunPod(t, pods[name])
		sandboxes = append(sandboxes, pods[name])
	}
	f.Synchronize(sandboxes, []state.Existing{running(pods["before"], before)}) // was created without the plugin
	containers := []state.Existing{running(pods["before"], before)}
	for _, name := range []string{"default", "gold", "changed"} {
		containers = append(containers, running(pods[name], f.mustRun(t, pods[name], container("c-"+name))))
	}
	f.mustUpdate(t, qos.Subject{PodUID: "uid-changed", Container: "main"}, map[string]string{cache: "silver", disk: "fast"})
	f.Reconcile(t.Context())

	reached := 0
	for _, backend := range f.backends {
		backend.Before(func() {
			if reached++; reached == step {
				f.Synchronize(sandboxes, containers)
			}
		})
	}
	operation(t, f)
	steps = reached
	f.Repair(t.Context())

	outcome = map[string]string{}
	for resource, backend := range f.backends {
		for _, id := range []string{"c-default", "c-before", "c-gold", "c-changed"} {
			outcome[id+" "+resource] = f.has(id, resource)
		}
		for id, class := range backend.Enforced() {
			outcome[fmt.Sprint("enforced ", id, " ", resource)] = class
		}
		for _, class := range []string{"gold", "silver", "bronze", "fast", "slow", "high", "low"} {
			outcome["used "+resource+" "+class] = fmt.Sprint(nodetest.InUse(f.Status(), resource, class))
		}
	}
	return outcome, steps
}
