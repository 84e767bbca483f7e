// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func TestCheckWarnsOfLinuxClassesThatSomeContainersOrThisKernelCannotHave(t *testing.T) {
	const warning = "warning: v.example/profile: "
	for _, test := range []struct {
		name, without, class, want string // the kernel lacks the controller `without`
	}{
		{"a share of the memory limit", "", "{memory: {low: 50%}, cpu: {burst: 10ms}}", warning + "NeedsLimits: WithoutLimit: containers without " +
			"a memory limit in class a and without a CPU limit in class a are refused; to leave out only these properties, write withoutLimit: skip into the class"},
		{"a share that is left out", "", "{withoutLimit: skip, memory: {low: 50%}, cpu: {burst: 10ms}}", ""},
		{"a kernel without the controller", "memory", "{memory: {low: 1Mi}}", warning + "unavailable on this machine (NoController): " +
			`class "a" sets memory.low, and this machine has no memory controller; boot without cgroup_disable=memory`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newCheckFixture(t, map[string]string{"a.yaml": `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: v.example/profile
  linux: {classes: {a: ` + test.class + "}}\n"})
			machine := sim.New(sim.Options{Cgroups: simcgroup.New(simcgroup.Without(test.without))})
			tree, err := cgroup.Detect(machine)
			must(t, err)
			f.Kinds = config.Kinds(config.Host{FS: machine, Tree: tree, Log: slog.New(slog.DiscardHandler)})
			got := strings.TrimSuffix(f.check(t, f.dir).Out, "1 file, 1 resource, 1 class: OK\n")
			if got = strings.TrimSuffix(got, "\n"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
