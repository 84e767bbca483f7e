// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

const monitoringFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  rdt: {monitoring: containers, partitions: {all: {l3Allocation: "100%", classes: {gold: {}, silver: {}}}}}
`

// monitoringNode is a node with the metrics of the plugin, on a simulated CPU that can monitor 3 containers.
type monitoringNode struct {
	*node.Node
	machine  *sim.Machine
	registry *prometheus.Registry
}

func newMonitoringNode(t *testing.T) *monitoringNode {
	t.Helper()
	return newMonitoringNodeOf(t, monitoringFiles)
}

// newMonitoringNodeOf returns a node with a class file. The functions in `edit` change its options.
func newMonitoringNodeOf(t *testing.T, files string, edit ...func(*node.Options)) *monitoringNode {
	t.Helper()
	spec := resctrl.IntelSpec()
	spec.RMIDs = 8 + 3 // 8 are reserved for classes
	machine := sim.New(sim.Options{RDT: &spec})
	tree, err := cgroup.Detect(machine)
	must(t, err)

	kinds := []classes.Kind{rdt.Kind(rdt.Options{FS: machine, Threads: tree, Log: slog.New(slog.DiscardHandler)})}
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(files)}}, kinds, nil)
	must(t, err)

	o := node.Options{Kinds: kinds, Log: slog.New(slog.DiscardHandler)}
	for _, change := range edit {
		change(&o)
	}
	n := &monitoringNode{node.New(o), machine, prometheus.NewRegistry()}
	must(t, n.Configure(t.Context(), classes.FileSet{Config: config, Files: []string{"a.yaml"}}))

	n.Synchronize(nil, nil)
	n.registry.MustRegister(newCollector(n.Node), newUsageCollector(n.Node, kinds))
	return n
}

// start creates and starts a container, whose name is also the name of its pod.
func (n *monitoringNode) start(t *testing.T, name, class string, pid int) {
	t.Helper()
	path := "/kubepods/pod" + name + "/main"
	c := classes.Holder{
		ID: name, Container: "main", CgroupsPath: path, SandboxID: "sandbox-" + name, PodUID: name, PodName: name, PodNamespace: "ns",
		PodAnnotations: map[string]string{"qos.noderesource.dev/pod": "rdt=" + class},
	}

	adjustment, _, err := n.CreateContainer(c)
	must(t, err)

	c.PID = pid
	n.machine.Cgroups().AddCgroup(path)
	n.machine.Cgroups().AddProcess(path, pid)
	n.machine.Resctrl().AddTask(pid, adjustment[classes.Setting{Name: classes.SettingClosID}])
	enforce, err := n.StartContainer(c)
	if err == nil && enforce != nil {
		err = enforce(t.Context())
	}
	must(t, err)
}

// series returns the name and labels of each series of a scrape, and its value. The scrape takes a new sample.
func (n *monitoringNode) series(t *testing.T) map[string]float64 {
	t.Helper()
	<-time.After(time.Second)
	families, err := n.registry.Gather()
	must(t, err)

	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			found[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}

	return found
}

// TestEndedContainersLeaveNoSeries starts and ends 100 containers. Ten of them run at a time, of which three can be monitored.
func TestEndedContainersLeaveNoSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMonitoringNode(t)
		before, most := n.series(t), 0
		for i := range 100 {
			name := fmt.Sprint("c", i)
			n.start(t, name, []string{"gold", "silver", ""}[i%3], 100+i)
			if i >= 10 {
				n.Stop(fmt.Sprint("c", i-10))
			}
			if i%7 == 0 { // may give an RMID to another container
				n.Repair(t.Context())
			}

			during := n.series(t)
			maps.DeleteFunc(during, func(series string, _ float64) bool { return !strings.HasPrefix(series, "container_") })
			most = max(most, len(during))
		}

		if want := 3*2*3 + 7; most != want { // 3 containers with 3 measures of 2 caches, and 7 with the reason why they have none
			t.Errorf("there were %d series of containers at a time, want %d", most, want)
		}

		for i := range 10 {
			n.Stop(fmt.Sprint("c", 90+i))
		}

		if diff := cmp.Diff(before, n.series(t)); diff != "" {
			t.Errorf("series (-before +after):\n%s", diff)
		}
	})
}

// TestMetricsCountTheMonitoredContainers starts more containers than can be monitored. The container of silver is the last one. The
// reconciler then gives it the RMID of a container of gold, because the classes share the RMIDs.
func TestMetricsCountTheMonitoredContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMonitoringNode(t)
		for i, class := range []string{"gold", "gold", "gold", "gold", "silver"} {
			n.start(t, fmt.Sprint("c", i), class, 100+i)
		}

		type containers struct{ monitored, unmonitored float64 }
		want := func(when string, gold, silver containers) {
			t.Helper()
			want := map[string]float64{
				`qos_monitored_containers{class="gold",resource="k8s.io/rdt"}`:                         gold.monitored,
				`qos_unmonitored_containers{class="gold",reason="NoFreeRMID",resource="k8s.io/rdt"}`:   gold.unmonitored,
				`qos_monitored_containers{class="silver",resource="k8s.io/rdt"}`:                       silver.monitored,
				`qos_unmonitored_containers{class="silver",reason="NoFreeRMID",resource="k8s.io/rdt"}`: silver.unmonitored,
			}
			got := n.series(t)
			maps.DeleteFunc(got, func(series string, _ float64) bool { _, has := want[series]; return !has })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}

		want("at first", containers{monitored: 3, unmonitored: 1}, containers{unmonitored: 1})
		n.Repair(t.Context())
		want("after a round of the reconciler", containers{monitored: 2, unmonitored: 2}, containers{monitored: 1})
	})
}
