// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
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
  rdt: {monitoring: containers}
`

// monitored returns the threads of each monitoring group, keyed by the path of the group.
func (f *machine) monitored() map[string]string {
	groups := map[string]string{}
	for path, tasks := range f.host.Resctrl().Dump() {
		if strings.Contains(path, "/mon_groups/") {
			groups[strings.TrimSuffix(strings.TrimPrefix(path, resctrl.MountPoint+"/"), "/tasks")] = strings.TrimSpace(tasks)
		}
	}
	return groups
}

func (f *machine) wantMonitored(t *testing.T, when string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, f.monitored()); diff != "" {
		t.Errorf("%s, monitoring groups and their threads (-want +got):\n%s", when, diff)
	}
}

// newMonitored creates a container, with its process, and starts it. The test must be in a bubble of synctest: there, each hook waits
// until the monitoring has begun, however busy this machine is.
func newMonitored(t *testing.T, files, request string) *machine {
	t.Helper()
	return newMonitoredOn(t, func(host crashHost) classes.Kind { return rdtOn(t, host) }, files, request)
}

func newMonitoredOn(t *testing.T, kindOn func(crashHost) classes.Kind, files, request string) *machine {
	t.Helper()
	spec := resctrl.IntelSpec()
	f := newMachine(t, sim.New(sim.Options{RDT: &spec}), kindOn, files, request)
	f.restart(t)
	adjustment := f.create(t, 100)
	f.host.Cgroups().AddCgroup(machinePath)
	f.host.Cgroups().AddProcess(machinePath, 100)
	f.host.Resctrl().AddTask(100, adjustment[classes.Setting{Name: classes.SettingClosID}])
	f.start(t)
	return f
}

// TestAContainerIsMonitoredFromItsStartToItsEnd starts a container without a class, and restarts the plugin.
func TestAContainerIsMonitoredFromItsStartToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMonitored(t, monitoringFiles, "")
		group := map[string]string{"mon_groups/qos-c1": "100"}
		f.wantMonitored(t, "after the start", group)
		f.restart(t)
		f.Reconcile(t.Context())
		f.wantMonitored(t, "after a restart, before the runtime has reported its containers", group)
		f.recover(t)
		f.wantMonitored(t, "after a restart", group)
		f.Stop("c1")
		f.wantMonitored(t, "after the end", map[string]string{})
	})
}

func TestAContainerThatEndedWhileThePluginWasAwayIsNotMonitored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMonitored(t, monitoringFiles, "")
		f.restart(t)
		f.Synchronize(nil, nil)
		f.Reconcile(t.Context())
		f.wantMonitored(t, "after a restart without the container", map[string]string{})
	})
}

func TestTheUsageOfAMonitoredContainerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMonitored(t, monitoringFiles, "")
		f.host.Resctrl().Count("mon_groups/qos-c1", 0, "llc_occupancy", "65536")
		sample, err := f.Usage(t.Context())
		if err != nil || len(sample.Holders) != 1 {
			t.Fatalf("usage of containers: %+v, error %v; want the usage of one container", sample.Holders, err)
		}
		c := sample.Holders[0]
		if got := c.Reading[classes.Series{Measure: "llc_occupancy_bytes", Part: "0"}]; got != 65536 || c.ID != "c1" {
			t.Errorf("container %s occupies %v bytes, want c1 and 65536", c.ID, got)
		}
	})
}

// TestAContainerThatCannotBeMonitoredStartsAndIsReported simulates a machine on which no RMID is left for containers.
func TestAContainerThatCannotBeMonitoredStartsAndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := resctrl.IntelSpec()
		spec.RMIDs = 1 // for the root group
		m := sim.New(sim.Options{RDT: &spec})
		f := newMachine(t, m, func(host crashHost) classes.Kind { return rdtOn(t, host) }, monitoringFiles, "")
		f.restart(t)
		f.create(t, 100)
		f.host.Cgroups().AddCgroup(machinePath)
		f.host.Cgroups().AddProcess(machinePath, 100)
		f.host.Resctrl().AddTask(100, "")
		f.start(t)
		f.wantMonitored(t, "without RMIDs", map[string]string{})

		resource := f.Live().Resources["k8s.io/rdt"]
		conditions := resource.Status().Conditions
		if last := conditions[len(conditions)-1]; last.Healthy || !strings.Contains(last.Message, "not monitored: 1") {
			t.Errorf("conditions are %+v, want that one container is not monitored", conditions)
		}
	})
}

// TestAMonitoredContainerIsMonitoredInItsNewClass changes the class of a running container.
func TestAMonitoredContainerIsMonitoredInItsNewClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newMonitored(t, strings.Replace(rdtFiles, "rdt: {", "rdt: {monitoring: containers, ", 1), "rdt=gold")
		f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, f.ctr)})
		f.wantMonitored(t, "after the start", map[string]string{"qos-gold/mon_groups/qos-c1": "100"})
		f.mustUpdate(t, ownerA, map[string]string{"rdt": "silver"})
		f.wantMonitored(t, "after an update", map[string]string{"qos-silver/mon_groups/qos-c1": "100"})
		f.Repair(t.Context())
		f.wantMonitored(t, "after a repair", map[string]string{"qos-silver/mon_groups/qos-c1": "100"})
	})
}

// readCounter counts how often each file is read.
type readCounter struct {
	crashHost
	reads map[string]int
}

func (r *readCounter) ReadFile(path string) ([]byte, error) {
	r.reads[path]++
	return r.crashHost.ReadFile(path)
}

func TestASampleReadsEachCounterOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter := &readCounter{reads: map[string]int{}}
		f := newMonitoredOn(t, func(host crashHost) classes.Kind {
			counter.crashHost = host
			return rdtOn(t, counter)
		}, monitoringFiles, "")

		clear(counter.reads)
		if sample, err := f.Usage(t.Context()); err != nil || len(sample.Holders) != 1 || len(sample.Classes) != 1 {
			t.Fatalf("sample %+v, error %v; want one container and one class", sample, err)
		}

		want := map[string]int{}
		for _, group := range []string{"", "mon_groups/qos-c1"} {
			for _, cache := range []string{"mon_L3_00", "mon_L3_01"} {
				for _, file := range []string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"} {
					want[path.Join(resctrl.MountPoint, group, "mon_data", cache, file)] = 1
				}
			}
		}

		if diff := cmp.Diff(want, counter.reads); diff != "" {
			t.Errorf("readings (-want +got):\n%s", diff)
		}
	})
}

// unmonitored records the containers whose monitoring is ended.
type unmonitored struct {
	*rdt.Backend
	ids *[]string
}

func (u unmonitored) Unmonitor(id string) {
	*u.ids = append(*u.ids, id)
	u.Backend.Unmonitor(id)
}

// TestTheEndOfAContainerEndsOnlyItsOwnMonitoring ends c1, which is monitored, and two containers that are not. The kernel at first
// refuses to remove the monitoring group of c1.
func TestTheEndOfAContainerEndsOnlyItsOwnMonitoring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		f := newMonitoredOn(t, func(host crashHost) classes.Kind {
			kind := rdtOn(t, host)
			kind.New = func(string, classes.Scope) classes.Backend {
				return unmonitored{rdt.New(rdt.Options{FS: host, Threads: treeOf(t, host)}), &ids}
			}
			return kind
		}, monitoringFiles, "")

		f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, f.ctr)})
		f.host.Resctrl().Inject(func(resctrl.Call) *resctrl.Fault { return &resctrl.Fault{Errno: syscall.EBUSY} })
		for _, id := range []string{"c0", "c1", "c2"} {
			f.Stop(id)
		}

		if diff := cmp.Diff([]string{"c1"}, ids); diff != "" {
			t.Errorf("containers whose monitoring was ended (-want +got):\n%s", diff)
		}

		f.host.Resctrl().Inject(nil)
		f.Reconcile(t.Context())
		f.wantMonitored(t, "after a round of the reconciler", map[string]string{})
	})
}
