// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
	simresctrl "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

const classFile = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  rdt: {partitions: {p: {mbAllocation: ["55%"], classes: {gold: {mbAllocation: ["100%"]}}}}}
- name: k8s.io/blockio
  blockio: {Classes: {heavy: [{Weight: 400}], lost: [{Devices: [/dev/nvme9n9], ThrottleReadBps: 1M}]}}
`

// statusWith returns the node API's status of a machine with real backends.
func statusWith(t *testing.T, spec simresctrl.Spec, mountResctrl bool, m *simcgroup.Machine) *qosv1alpha1.StatusResponse {
	t.Helper()
	tree, err := cgroup.Detect(m)
	if err != nil {
		t.Fatal(err)
	}

	log := slog.New(slog.DiscardHandler)
	kinds := []classes.Kind{
		rdt.Kind(rdt.Options{FS: simresctrl.New(spec), MountResctrl: mountResctrl, Log: log}),
		blockio.Kind(ioapply.New(ioapply.Options{FS: m, Tree: tree, Log: log})),
	}

	n := node.New(node.Options{Kinds: kinds, Log: log})
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(classFile)}}, kinds, nil)
	if err := n.Configure(t.Context(), classes.FileSet{Config: config, Err: err}); err != nil {
		t.Fatal(err)
	}

	return request(t, n)
}

// request returns the status from the node API's socket.
func request(t *testing.T, n *node.Node) *qosv1alpha1.StatusResponse {
	t.Helper()
	dir, err := os.MkdirTemp("", "qos") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	served, err := apitest.Serve(context.WithoutCancel(t.Context()), n, dir)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = served.Stop() })
	conn, err := nodeclient.Connect(served.Socket)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = conn.Close() })
	response, err := qosv1alpha1.NewNodeQOSClient(conn).Status(t.Context(), &qosv1alpha1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}

	return response
}

// summary returns texts for each resource of an object: "type=status/reason" for each condition, one text for each
// degraded class, and the reason why the resource is unavailable.
func summary(t *testing.T, written object) map[string][]string {
	t.Helper()
	var typed nodeqosv1alpha1.NodeQOSResources
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(written, &typed); err != nil {
		t.Fatal(err)
	}

	all := map[string][]string{}
	for _, resource := range typed.Status.QOSResources.ContainerQOSResources {
		for _, c := range resource.Conditions {
			all[resource.Name] = append(all[resource.Name], c.Type+"="+string(c.Status)+"/"+c.Reason)
		}
		for _, class := range resource.Classes {
			if class.Degraded != "" {
				all[resource.Name] = append(all[resource.Name], "class "+class.Name+" degraded")
			}
		}
	}

	for _, resource := range typed.Status.UnavailableResources {
		all[resource.Name] = append(all[resource.Name], "unavailable/"+resource.Reason)
	}

	return all
}

func weighable(t *testing.T, scheduler string) *simcgroup.Machine {
	t.Helper()
	m := simcgroup.New()
	m.AddDisk("sda", 8, 0)
	if err := m.WriteFile("/sys/block/sda/queue/scheduler", []byte(scheduler)); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheObjectHasTheConditionsOfRealBackends(t *testing.T) {
	unmounted, none := simresctrl.IntelSpec(), simresctrl.IntelSpec()
	unmounted.Unmounted, none.NoKernel = true, true
	for _, test := range []struct {
		name      string
		spec      simresctrl.Spec
		mount     bool
		scheduler string
		want      map[string][]string
	}{
		{"resctrl is mounted, and weights have an effect", simresctrl.IntelSpec(), false, "bfq", map[string][]string{
			"k8s.io/rdt":     {"BandwidthExact=True/Rounded", "CLOSIDsFree=True/Free", "CacheNotShared=True/PartlyShared", "ConfigurationApplied=True/Applied", "ResctrlMounted=True/Mounted"},
			"k8s.io/blockio": {"DevicesMatched=False/SomeIgnored", "WeightsEffective=True/SchedulerActs", "class lost degraded"},
		}},
		{"resctrl was mounted by the plugin", unmounted, true, "bfq", map[string][]string{
			"k8s.io/rdt":     {"BandwidthExact=True/Rounded", "CLOSIDsFree=True/Free", "CacheNotShared=True/PartlyShared", "ConfigurationApplied=True/Applied", "ResctrlMounted=True/Mounted"},
			"k8s.io/blockio": {"DevicesMatched=False/SomeIgnored", "WeightsEffective=True/SchedulerActs", "class lost degraded"},
		}},
		{"resctrl is not mounted, and weights have no effect", unmounted, false, "none", map[string][]string{
			"k8s.io/rdt": {"unavailable/NotMounted"},
			"k8s.io/blockio": {"DevicesMatched=False/SomeIgnored", "WeightsEffective=False/NoScheduler",
				"class heavy degraded", "class lost degraded"},
		}},
		{"the kernel has no resctrl", none, true, "none", map[string][]string{
			"k8s.io/rdt": {"unavailable/NoKernelSupport"},
			"k8s.io/blockio": {"DevicesMatched=False/SomeIgnored", "WeightsEffective=False/NoScheduler",
				"class heavy degraded", "class lost degraded"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			status := statusWith(t, test.spec, test.mount, weighable(t, test.scheduler))
			synctest.Test(t, func(t *testing.T) {
				r := start(t, serve(t, "uid-1"), nodecache.State{Status: status, Latest: status, Assignments: &qosv1alpha1.ListAssignmentsResponse{}})
				pass(time.Minute)
				if diff := cmp.Diff(test.want, summary(t, r.get())); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				r.stop()
			})
		})
	}
}
