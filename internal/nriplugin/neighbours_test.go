// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// neighbour is another NRI plugin.
type neighbour struct {
	adjust func(*api.ContainerAdjustment) error
}

func (n *neighbour) CreateContainer(
	context.Context, *api.PodSandbox, *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a := &api.ContainerAdjustment{}
	return a, nil, n.adjust(a)
}

// startNeighbour starts another plugin, "balloons", with the given NRI index. The plugin under test has index 10.
func startNeighbour(t *testing.T, r *machineRig, index string, adjust func(*api.ContainerAdjustment) error) {
	t.Helper()
	s, err := stub.New(&neighbour{adjust}, stub.WithPluginName("balloons"), stub.WithPluginIdx(index),
		stub.WithSocketPath(r.Socket()), stub.WithOnClose(func() {}))
	must(t, err)
	must(t, s.Start(t.Context()))
	t.Cleanup(s.Stop)
	r.wait(t, 2)
}

// TestAConflictWithAnotherPluginIsReported lets another plugin adjust the container. NRI calls plugins in the order of their
// indexes, and the plugin under test has 10.
func TestAConflictWithAnotherPluginIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		index, request, reason string
		text                   []string
		adjust                 func(*api.ContainerAdjustment) error
	}{
		"another group, set after ours": {
			"90", "rdt=gold", "NotCreated", []string{"linux.intelRdt.closID", "balloons"},
			func(a *api.ContainerAdjustment) error { a.SetLinuxRDTClosID("BestEffort"); return nil },
		},
		"another group, set before ours, where all containers have a default class": {
			"05", "", "NotCreated", []string{"linux.intelRdt.closID", "balloons"},
			func(a *api.ContainerAdjustment) error { a.SetLinuxRDTClosID("BestEffort"); return nil },
		},
		"other limits, set before ours; the group is no conflict": {
			"05", "blockio=fast,rdt=gold", "NotCreated", []string{"another NRI plugin also sets linux.resources.unified[io.max]", "Direct: true"},
			func(a *api.ContainerAdjustment) error { a.AddLinuxUnified("io.max", "254:0 rbps=1"); return nil },
		},
		"a plugin that refuses the container": {
			"90", "rdt=gold", "NotCreated", []string{"or an NRI plugin refused the container"},
			func(*api.ContainerAdjustment) error { return errors.New("no CPUs are left") },
		},
		"our group is removed": {
			"90", "rdt=gold", "AdjustmentChanged", []string{`linux.intelRdt.closID has "" instead of "qos-gold"`, "90-balloons"},
			func(a *api.ContainerAdjustment) error { a.RemoveLinuxRDT(); return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMachineRig(t, simcgroup.New())
			adjust := func(*api.ContainerAdjustment) error { return nil }
			startNeighbour(t, r, test.index, func(a *api.ContainerAdjustment) error { return adjust(a) })
			// the plugin knows the other plugins only after a creation, because the runtime lists them with it
			r.mustRun(t, r.pod(t, "lets-us-see-the-plugins", "rdt=silver"))
			adjust = test.adjust
			pod := r.pod(t, "a", test.request)
			if _, err := r.run(t, pod); err == nil {
				t.Fatal("the container was created")
			}

			refused := r.node.Refused()
			if len(refused) != 1 || refused[0].Reason != test.reason || r.node.Status().Refusals[test.reason] != 1 {
				t.Fatalf("refused %+v, counted %v; want one refusal", refused, r.node.Status().Refusals)
			}

			for _, text := range append(test.text, "pod default/a container main") {
				if !strings.Contains(refused[0].Message, text) {
					t.Errorf("reported %q, want %q in it", refused[0].Message, text)
				}
			}

			if got := r.inUse("gold"); got != 0 {
				t.Errorf("%d slots of the class are in use, want none", got)
			}

			adjust = func(*api.ContainerAdjustment) error { return nil }
			r.mustRun(t, pod)
			if refused := r.node.Refused(); len(refused) > 0 {
				t.Errorf("after the container has started, the refusals are %+v, want none", refused)
			}
		})
	}
}

func TestThePluginsOfTheRuntimeAreReported(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	startNeighbour(t, r, "90", func(*api.ContainerAdjustment) error { return nil })
	r.mustRun(t, r.pod(t, "a", ""))
	if got := strings.Join(r.node.Status().Runtime.Plugins, ", "); got != "10-qos-nri-plugin, 90-balloons" {
		t.Errorf("reported NRI plugins: %s", got)
	}
}

// TestDirectBlockIODoesNotConflictWithAnotherNRIPlugin runs another plugin that sets io.max of every container, for a
// disk that the class names and for another disk. With Direct: true, the plugin writes io.max itself and does not
// request it from the runtime.
func TestDirectBlockIODoesNotConflictWithAnotherNRIPlugin(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	startNeighbour(t, r, "90", func(a *api.ContainerAdjustment) error {
		a.AddLinuxUnified("io.max", "254:0 wbps=5000000\n254:16 wbps=5000000")
		return nil
	})

	r.mustConfigure(t, strings.Replace(machineFiles, "  blockio:\n", "  blockio:\n    Direct: true\n", 1))
	id := r.mustRun(t, r.pod(t, "a", "blockio=fast"))
	r.wantReported(t, id, "k8s.io/blockio", "fast/pod")
	c := r.container(t, id)

	file := "/sys/fs/cgroup" + c.Spec.CgroupsPath + "/io.max"
	data, err := r.host.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	slices.Sort(lines)
	const want = "254:0 rbps=50000000 wbps=max riops=max wiops=max; 254:16 rbps=max wbps=5000000 riops=max wiops=max"
	if got := strings.Join(lines, "; "); err != nil || got != want {
		t.Errorf("%s is %q, %v; want the class on its disk, and the other plugin's limit on the other disk", file, got, err)
	}
}
