// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

const (
	rdt     = "k8s.io/rdt"
	blockio = "k8s.io/blockio"
	network = "vendor.example/network"
	cache   = "test.example/cache" // of a fake kernel
	theirs  = "/sys/fs/resctrl/theirs/schemata"
)

// good is a node without violations. Pod a has a container in class gold, and a container that is created but not
// started. Pod b has a container in the system default.
func good() invariant.World {
	a := &qosv1alpha1.PodAssignments{
		Uid: "uid-a", Namespace: "default", Name: "a", SandboxId: "sandbox-a",
		QosResources: []*qosv1alpha1.Assignment{{Name: network, Class: "slow"}},
		Containers:   []*qosv1alpha1.ContainerAssignments{reported("main", "a1", "gold", "fast"), reported("side", "a2", "silver", "")},
	}

	b := &qosv1alpha1.PodAssignments{
		Uid: "uid-b", Namespace: "default", Name: "b", SandboxId: "sandbox-b",
		QosResources: []*qosv1alpha1.Assignment{{Name: network}},
		Containers:   []*qosv1alpha1.ContainerAssignments{reported("main", "b1", "", "")},
	}

	return invariant.World{
		Status: &qosv1alpha1.StatusResponse{
			Config: &qosv1alpha1.ConfigInfo{Generation: 1},
			Resources: &qosv1alpha1.ResourcesInfo{
				PodQosResources: []*qosv1alpha1.QOSResourceInfo{{Name: network, Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "slow", InUse: 1}}}},
				ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{
					{Name: rdt, Classes: []*qosv1alpha1.QOSResourceClassInfo{
						{Name: "gold", Capacity: 1, InUse: 1}, {Name: "bronze"}, {Name: "silver", InUse: 1, Draining: true},
					}},
					{Name: blockio, Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "fast", InUse: 1}}},
					{Name: cache, Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "big", InUse: 1}}},
				},
			},
		},
		Assignments: &qosv1alpha1.ListAssignmentsResponse{Pods: []*qosv1alpha1.PodAssignments{a, b}, Synchronized: true},
		Live: invariant.Live{
			Pods: []invariant.Pod{
				{UID: "uid-a", Namespace: "default", Name: "a", ID: "sandbox-a"}, {UID: "uid-b", Namespace: "default", Name: "b", ID: "sandbox-b"},
			},
			Containers: []invariant.Container{
				live("a", "main", "a1", true), live("a", "side", "a2", false), live("b", "main", "b1", true),
			},
		},
		Kernel: invariant.Kernel{
			Groups: map[string]invariant.Group{
				"": {Tasks: []int{1, 30}}, "theirs": {}, "qos-bronze": {}, "qos-silver": {},
				"qos-gold": {Schemata: "    L3:0=00f;1=00f\n    MB:0=100;1= 50\n", Tasks: []int{10, 11}},
			},
			Cgroups: map[string]invariant.Cgroup{
				"a1":        {Threads: []int{10, 11}, Files: map[string]string{"io.max": "254:0 rbps=1000 wbps=max riops=max wiops=max\n", "io.weight": "default 100\n"}},
				"b1":        {Threads: []int{30}, Files: map[string]string{"io.max": "", "io.bfq.weight": "default 100\n"}},
				"sandbox-a": {Files: map[string]string{"io.max": "254:0 rbps=max wbps=500 riops=max wiops=max\n"}},
				"sandbox-b": {},
			},
			Classes: map[string]map[string]string{cache: {"a1": "big", "ended": "big"}},
		},
		Before:  map[string]string{theirs: "L3:0=ff0"},
		Foreign: map[string]string{theirs: "L3:0=ff0"},
		Expect: invariant.Expect{
			Schemata: map[string]string{"gold": "L3:0=f;1=f\nMB:0=100;1=50\n", "silver": "L3:0=1"},
			Limits: map[string]map[string]map[string]string{
				blockio: {"fast": {"io.max": "254:0 rbps=1000"}}, network: {"slow": {"io.max": "254:0 wbps=500"}},
			},
		},
	}
}

// reported is a container as the API reports it. A container in gold is also in class big of the fake kernel.
func reported(name, id, class, io string) *qosv1alpha1.ContainerAssignments {
	big := map[string]string{"gold": "big"}[class]
	return &qosv1alpha1.ContainerAssignments{Name: name, Id: id, QosResources: []*qosv1alpha1.Assignment{
		{Name: rdt, Class: class}, {Name: blockio, Class: io}, {Name: cache, Class: big},
	}}
}

func live(pod, name, id string, started bool) invariant.Container {
	return invariant.Container{
		PodUID: "uid-" + pod, PodNamespace: "default", PodName: pod, Name: name, ID: id, Started: started, Recorded: true,
	}
}

// pod returns pod a (0) or pod b (1) of the node good.
func pod(w *invariant.World, i int) *qosv1alpha1.PodAssignments { return w.Assignments.Pods[i] }

// resource returns a container resource of the node good: rdt with the classes gold, bronze and silver (0), blockio with fast (1), or cache
// with big (2).
func resource(w *invariant.World, i int) *qosv1alpha1.QOSResourceInfo {
	return w.Status.Resources.ContainerQosResources[i]
}

// monitor adds the monitoring group of a container to a control group.
func monitor(w *invariant.World, group, id string, threads ...int) {
	g := w.Kernel.Groups[group]
	g.Monitors = map[string][]int{"qos-" + id: threads}
	w.Kernel.Groups[group] = g
}

// only selects the containers of one class to be monitored.
func only(class string) func(string) bool { return func(c string) bool { return c == class } }

func TestAGoodWorldHasNoViolations(t *testing.T) {
	for name, change := range map[string]func(w *invariant.World){
		"as it is": func(*invariant.World) {},
		"a container without a request need not be reported before its start": func(w *invariant.World) {
			w.Live.Containers = append(w.Live.Containers, invariant.Container{ID: "new"})
		},
		"containers that are monitored": func(w *invariant.World) {
			w.Expect.Monitored = func(string) bool { return true }
			monitor(w, "qos-gold", "a1", 10, 11)
			monitor(w, "", "b1", 30)
			monitor(w, "theirs", "x", 99)
		},
		"a container for which no RMID is free": func(w *invariant.World) {
			w.Expect.Monitored = only("gold")
			w.Expect.RMIDs = 1
			monitor(w, "theirs", "x", 99)
			resource(w, 0).Conditions = []*qosv1alpha1.Condition{{Type: "ContainersMonitored"}}
		},
		"a limit of another program that is reported": func(w *invariant.World) {
			w.Kernel.Cgroups["b1"].Files["io.max"] = "254:0 wbps=9\n"
			pod(w, 1).Containers[0].QosResources[1].Foreign = "limits of 254:0 (vda)"
		},
		"a volume with a lower limit than that of its class": func(w *invariant.World) {
			pod(w, 0).Containers[0].Volumes = []*qosv1alpha1.VolumeAssignments{
				{Path: "/data", Device: "254:0", QosResources: []*qosv1alpha1.Assignment{{Name: "volume-io", Class: "silver"}}},
			}
			w.Expect.Volumes = map[string]map[string]uint64{"silver": {"wbps": 600}} // the pod has 500
		},
		"a volume on a disk that the pod's class does not limit": func(w *invariant.World) {
			pod(w, 0).Containers[0].Volumes = []*qosv1alpha1.VolumeAssignments{
				{Path: "/data", Device: "7:0", QosResources: []*qosv1alpha1.Assignment{{Name: "volume-io", Class: "silver"}}},
			}
			sandbox := w.Kernel.Cgroups["sandbox-a"]
			sandbox.Files = map[string]string{"io.max": sandbox.Files["io.max"] + "7:0 rbps=max wbps=600 riops=max wiops=max\n"}
			w.Kernel.Cgroups["sandbox-a"] = sandbox
			w.Expect.Volumes = map[string]map[string]uint64{"silver": {"wbps": 600}}
		},
		"holders above a capacity that was lowered": func(w *invariant.World) {
			resource(w, 0).Classes[1] = &qosv1alpha1.QOSResourceClassInfo{Name: "bronze", Capacity: 1, InUse: 2}
			pod(w, 0).Containers[1] = reported("side", "a2", "bronze", "")
			pod(w, 1).Containers[0] = reported("main", "b1", "bronze", "")
			resource(w, 0).Classes[2].InUse = 0
			w.Kernel.Groups["qos-bronze"], w.Kernel.Groups[""] = invariant.Group{Tasks: []int{30}}, invariant.Group{}
			w.Expect.Most = map[invariant.Class]uint64{{Resource: rdt, Name: "bronze"}: 2}
		},
		"an unavailable resource is not checked": func(w *invariant.World) {
			w.Status.UnavailableResources = []*qosv1alpha1.UnavailableResource{{Name: rdt}}
			w.Status.Resources.ContainerQosResources = w.Status.Resources.ContainerQosResources[1:]
			w.Kernel.Groups = nil
		},
		"nothing is checked before class files are applied": func(w *invariant.World) {
			w.Status.Config.Generation, w.Status.Resources = 0, nil
		},
		"a container that could not be moved is reported in its present class": func(w *invariant.World) {
			pod(w, 0).Containers[0].QosResources[0] = &qosv1alpha1.Assignment{Name: rdt, Source: qosv1alpha1.Source_SOURCE_ADOPTED}
			gold := w.Kernel.Groups["qos-gold"]
			gold.Tasks = nil
			w.Kernel.Groups["qos-gold"], w.Kernel.Groups[""] = gold, invariant.Group{Tasks: []int{10, 11, 30}}
		},
		"a draining resource is not reported for containers without its classes": func(w *invariant.World) {
			resource(w, 1).Classes[0].Draining = true
			pod(w, 1).Containers[0].QosResources = slices.Delete(pod(w, 1).Containers[0].QosResources, 1, 2)
			w.Kernel.Cgroups["a1"].Files["io.max"] = "254:0 rbps=5\n" // the limits of a class that was removed
		},
		"fields that are not compared": func(w *invariant.World) {
			w.Before, w.Expect.Limits, w.Expect.Schemata = nil, nil, nil
			w.Foreign = map[string]string{"x": "y"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := good()
			change(&w)
			if diff := cmp.Diff([]string(nil), invariant.Violations(w)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEveryViolationIsFound(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(w *invariant.World)
		want   string
	}{
		{"a container that is reported after its end", func(w *invariant.World) {
			w.Live.Containers = w.Live.Containers[1:]
		}, "pod default/a container main (a1) is reported, but does not exist any more"},
		{"a container that is not reported", func(w *invariant.World) {
			w.Live.Containers = append(w.Live.Containers, live("b", "side", "b2", true))
		}, "pod default/b container side (b2) exists, but is not reported"},
		{"a container with classes that is not reported before its start", func(w *invariant.World) {
			w.Live.Containers = append(w.Live.Containers, live("b", "side", "b2", false))
		}, "pod default/b container side (b2) exists, but is not reported"},
		{"a container that is reported twice", func(w *invariant.World) {
			pod(w, 1).Containers = append(pod(w, 1).Containers, pod(w, 1).Containers[0])
		}, "pod default/b container main (b1) is reported twice"},
		{"a container that is reported as another", func(w *invariant.World) {
			w.Live.Containers[0].Name = "other"
		}, "pod default/a container other (a1) is reported as pod default/a container main (a1)"},
		{"a pod that is reported after its end", func(w *invariant.World) {
			w.Live.Pods[0].ID = "sandbox-a2"
			w.Kernel.Cgroups["sandbox-a2"] = w.Kernel.Cgroups["sandbox-a"]
		}, "pod default/a (sandbox-a) is reported, but does not exist any more"},
		{"a pod that is not reported where pods have classes", func(w *invariant.World) {
			w.Live.Pods = append(w.Live.Pods, invariant.Pod{UID: "uid-c", Namespace: "default", Name: "c", ID: "sandbox-c"})
		}, "pod default/c (sandbox-c) exists, but is not reported"},
		{"a volume without the limit of its class", func(w *invariant.World) {
			pod(w, 0).Containers[0].Volumes = []*qosv1alpha1.VolumeAssignments{
				{Path: "/data", Device: "254:0", QosResources: []*qosv1alpha1.Assignment{{Name: "volume-io", Class: "silver"}}},
			}
			w.Expect.Volumes = map[string]map[string]uint64{"silver": {"wbps": 100}}
		}, `pod default/a container main volume /data: reported in class "silver" of volume-io with io.max 254:0 wbps = 100, but has "500"`},
		{"a slot that was lost", func(w *invariant.World) { resource(w, 0).Classes[0].InUse = 0 },
			`class "gold" of k8s.io/rdt has 0 in use, but 1 are reported in it`},
		{"a slot that was leaked", func(w *invariant.World) { resource(w, 0).Classes[1].InUse = 1 },
			`class "bronze" of k8s.io/rdt has 1 in use, but 0 are reported in it`},
		{"a class that the status does not have", func(w *invariant.World) {
			resource(w, 0).Classes = resource(w, 0).Classes[:2]
			delete(w.Kernel.Groups, "qos-silver")
		}, `1 are reported in class "silver" of k8s.io/rdt, and the status has no such class`},
		{"a bounded class that is over its capacity", func(w *invariant.World) {
			resource(w, 0).Classes[0].InUse = 2
			pod(w, 0).Containers[1] = reported("side", "a2", "gold", "")
			resource(w, 0).Classes[2].InUse = 0
			resource(w, 2).Classes[0].InUse = 2
			w.Expect.Most = map[invariant.Class]uint64{{Resource: blockio, Name: "gold"}: 2}
		}, `class "gold" of k8s.io/rdt is in use by 2, more than its capacity of 1, and more than before the capacity was lowered`},
		{"an orphan group", func(w *invariant.World) { w.Kernel.Groups["qos-old"] = invariant.Group{Tasks: []int{7}} },
			"resctrl group qos-old is left behind, with 1 threads; no class has it"},
		{"a class without its group", func(w *invariant.World) { delete(w.Kernel.Groups, "qos-bronze") },
			`class "bronze" of k8s.io/rdt has no group qos-bronze`},
		{"a resource that is offered without resctrl", func(w *invariant.World) { w.Kernel.Groups = nil },
			"k8s.io/rdt is offered, but resctrl is not mounted"},
		{"a group with other values", func(w *invariant.World) {
			w.Kernel.Groups["qos-gold"] = invariant.Group{Schemata: "L3:0=f;1=1f\nMB:0=100;1=50", Tasks: []int{10, 11}}
		}, "resctrl group qos-gold has L3:0=f;1=1f, but its class has 0=f;1=f"},
		{"a thread in another group", func(w *invariant.World) {
			w.Kernel.Groups["qos-bronze"] = invariant.Group{Tasks: []int{11}}
			w.Kernel.Groups["qos-gold"] = invariant.Group{Schemata: w.Kernel.Groups["qos-gold"].Schemata, Tasks: []int{10}}
		}, `pod default/a container main (a1): reported in class "gold" of k8s.io/rdt, but 1 of 2 threads are in other groups: 11 in qos-bronze`},
		{"a thread in no group", func(w *invariant.World) {
			w.Kernel.Groups["qos-gold"] = invariant.Group{Schemata: w.Kernel.Groups["qos-gold"].Schemata, Tasks: []int{10}}
		}, `pod default/a container main (a1): reported in class "gold" of k8s.io/rdt, but 1 of 2 threads are in other groups: 11 in no group`},
		{"the system default in a class", func(w *invariant.World) {
			w.Kernel.Groups["qos-bronze"], w.Kernel.Groups[""] = invariant.Group{Tasks: []int{30}}, invariant.Group{}
		}, "pod default/b container main (b1): reported in the system default of k8s.io/rdt, but 1 of 1 threads are in other groups: 30 in qos-bronze"},
		{"a container without threads", func(w *invariant.World) {
			w.Kernel.Cgroups["b1"] = invariant.Cgroup{}
		},
			"pod default/b container main (b1) runs, but has no threads in its cgroup"},
		{"a limit that is missing", func(w *invariant.World) { w.Kernel.Cgroups["a1"].Files["io.max"] = "" },
			`pod default/a container main (a1): reported in class "fast" of k8s.io/blockio with io.max 254:0 rbps = 1000, but has ""`},
		{"a limit that was left", func(w *invariant.World) { w.Kernel.Cgroups["b1"].Files["io.max"] = "254:16 wbps=9\n" },
			"pod default/b container main (b1): reported in the system default of k8s.io/blockio, but has io.max 254:16 wbps = 9, which the class does not set"},
		{"a limit on a disk that is not among the reported limits of another program", func(w *invariant.World) {
			w.Kernel.Cgroups["b1"].Files["io.max"] = "254:0 wbps=9\n254:16 wbps=9\n"
			pod(w, 1).Containers[0].QosResources[1].Foreign = "limits of 254:0 (vda)"
		}, "pod default/b container main (b1): reported in the system default of k8s.io/blockio, but has io.max 254:16 wbps = 9, which the class does not set"},
		{"a weight that was left", func(w *invariant.World) { w.Kernel.Cgroups["b1"].Files["io.bfq.weight"] = "default 100\n254:0 100\n" },
			"pod default/b container main (b1): reported in the system default of k8s.io/blockio, but has io.bfq.weight 254:0 = 100, which the class does not set"},
		{"a limit in cgroup v1", func(w *invariant.World) {
			w.Kernel.Cgroups["b1"].Files["blkio.throttle.read_bps_device"] = "254:0 5\n"
			w.Kernel.Cgroups["b1"].Files["blkio.bfq.weight"] = "100\n"
		}, "pod default/b container main (b1): reported in the system default of k8s.io/blockio, but has blkio.throttle.read_bps_device 254:0 = 5, which the class does not set"},
		{"a pod that is not limited", func(w *invariant.World) { w.Kernel.Cgroups["sandbox-a"].Files["io.max"] = "" },
			`pod default/a (sandbox-a): reported in class "slow" of vendor.example/network with io.max 254:0 wbps = 500, but has ""`},
		{"a container that is in a class of a fake kernel, and not reported in it", func(w *invariant.World) { w.Kernel.Classes[cache]["b1"] = "big" },
			`pod default/b container main (b1): reported in the system default of test.example/cache, but is in class "big" of test.example/cache`},
		{"a container that is not reported with every resource", func(w *invariant.World) {
			pod(w, 1).Containers[0].QosResources = pod(w, 1).Containers[0].QosResources[1:]
		}, "pod default/b container main (b1): no class of k8s.io/rdt is reported"},
		{"a foreign group that was changed", func(w *invariant.World) { w.Foreign[theirs] = "L3:0=f\n" },
			"foreign " + theirs + ` was changed from "L3:0=ff0" to "L3:0=f"`},
		{"a foreign group that was removed", func(w *invariant.World) { delete(w.Foreign, theirs) }, "foreign " + theirs + " was removed"},
		{"a monitoring group of a container that has ended", func(w *invariant.World) { monitor(w, "qos-gold", "ended") },
			`monitoring group qos-ended in group "qos-gold" belongs to no running container`},
		{"a monitoring group with a thread of another container", func(w *invariant.World) { monitor(w, "qos-gold", "a1", 10, 30) },
			`monitoring group qos-a1 in group "qos-gold" has thread 30, which does not belong to the container`},
		{"a container that is not monitored", func(w *invariant.World) { w.Expect.Monitored = only("gold") },
			"pod default/a container main (a1) has no monitoring group"},
		{"a container that is not monitored, although an RMID is free", func(w *invariant.World) {
			w.Expect.Monitored, w.Expect.RMIDs = only("gold"), 2
			monitor(w, "theirs", "x", 99)
			resource(w, 0).Conditions = []*qosv1alpha1.Condition{{Type: "ContainersMonitored"}}
		}, "pod default/a container main (a1) has no monitoring group"},
		{"a container that is monitored though its class is not selected", func(w *invariant.World) {
			w.Expect.Monitored = only("silver")
			monitor(w, "qos-gold", "a1", 10)
		}, `pod default/a container main (a1) has a monitoring group in ["qos-gold"], although its class is not monitored`},
		{"a container that is monitored in another group", func(w *invariant.World) {
			w.Expect.Monitored = only("gold")
			monitor(w, "qos-bronze", "a1", 10)
		}, `pod default/a container main (a1) has monitoring groups in ["qos-bronze"], want one in "qos-gold"`},
		{"a foreign group that was made", func(w *invariant.World) { w.Foreign["/x"] = "" }, "foreign /x is new"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := good()
			test.change(&w)
			if diff := cmp.Diff(test.want, strings.Join(invariant.Violations(w), "\n")); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCapacityAndForeignGroupsAreCheckedAtEveryMoment(t *testing.T) {
	w := good()
	resource(&w, 0).Classes[0].InUse = 2 // an assignment that is not in the list yet
	w.Foreign = maps.Clone(w.Foreign)
	w.Foreign[theirs] = "L3:0=1"
	w.Live.Containers = nil // this is not checked at every moment
	if got := invariant.Always(w); len(got) != 2 {
		t.Errorf("violations are %q, want those of capacity and foreign groups", got)
	}
}

func TestTheCheckChangesNothing(t *testing.T) {
	w, before := good(), good()
	invariant.Violations(w)
	if !proto.Equal(w.Status, before.Status) || !proto.Equal(w.Assignments, before.Assignments) {
		t.Error("the messages were changed")
	}
	if diff := cmp.Diff(before.Kernel, w.Kernel); diff != "" {
		t.Error(diff)
	}
}
