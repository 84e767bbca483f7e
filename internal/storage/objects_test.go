// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// manifests has the pod db, whose container main mounts the volume of the claim data, and the objects that the claim can refer to.
const manifests = `kind: Pod
metadata: {name: db, namespace: a, uid: u1}
spec:
  nodeName: node-1
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: tmp, emptyDir: {}}
  initContainers: [{name: setup, volumeMounts: [{name: data, mountPath: /init/}]}]
  containers:
  - {name: main, volumeMounts: [{name: tmp, mountPath: /tmp}, {name: data, mountPath: /data, subPath: x}]}
  - {name: other}
---
kind: PersistentVolumeClaim
metadata: {name: data, namespace: a, uid: c1}
spec: {volumeName: pv-1, volumeAttributesClassName: silver, storageClassName: fast}
---
kind: PersistentVolume
metadata: {name: pv-1}
spec: {csi: {driver: topolvm.io}, claimRef: {namespace: a, name: data, uid: c1}}
---
kind: VolumeAttributesClass
metadata: {name: silver}
driverName: topolvm.io
parameters: {iops: "500"}
---
kind: VolumeAttributesClass
metadata: {name: gold}
driverName: topolvm.io
parameters: {iops: "1000"}
---
kind: VolumeAttributesClass
metadata: {name: wrong}
driverName: topolvm.io
parameters: {iopz: "1000"}
---
kind: VolumeAttributesClass
metadata: {name: other}
driverName: ebs.csi.aws.com
parameters: {type: io2}
---
kind: StorageClass
metadata: {name: fast}
---
kind: StorageClass
metadata: {name: limited, annotations: {qos.noderesource.dev/default-volume-attributes-class: gold}}
`

// read parses manifests. It returns the pods separately from the other objects.
func read(t *testing.T, manifests string) (*objects, []*corev1.Pod) {
	t.Helper()
	indexer := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}

	stores := map[string]cache.Indexer{}
	for _, kind := range []string{"Pod", "PersistentVolumeClaim", "PersistentVolume", "VolumeAttributesClass", "StorageClass"} {
		stores[kind] = indexer()
	}

	examples := map[string]func() runtime.Object{
		"Pod": func() runtime.Object { return &corev1.Pod{} }, "PersistentVolumeClaim": func() runtime.Object { return &corev1.PersistentVolumeClaim{} },
		"PersistentVolume":      func() runtime.Object { return &corev1.PersistentVolume{} },
		"VolumeAttributesClass": func() runtime.Object { return &storagev1.VolumeAttributesClass{} },
		"StorageClass":          func() runtime.Object { return &storagev1.StorageClass{} },
	}

	for document := range strings.SplitSeq(manifests, "---\n") {
		var kind struct{ Kind string }
		must.Do(t, yaml.Unmarshal([]byte(document), &kind))
		object := examples[kind.Kind]()
		must.Do(t, yaml.UnmarshalStrict([]byte(document), object))
		trimmed := must.Get(Trim(object))(t) // as in the informers
		must.Do(t, stores[kind.Kind].Add(trimmed))
	}

	pods := must.Get(corelisters.NewPodLister(stores["Pod"]).List(labels.Everything()))(t)
	return &objects{
		claims:  corelisters.NewPersistentVolumeClaimLister(stores["PersistentVolumeClaim"]),
		volumes: corelisters.NewPersistentVolumeLister(stores["PersistentVolume"]),
		classes: storagelisters.NewVolumeAttributesClassLister(stores["VolumeAttributesClass"]), drivers: []string{"topolvm.io", LocalDriver},
		storageClasses: storagelisters.NewStorageClassLister(stores["StorageClass"]),
	}, pods
}

// specFor returns the spec of a node with the pods in the manifests, and the problems of their claims. `before` is its present spec.
func specFor(t *testing.T, manifests string, before nodeqosv1alpha1.NodeQOSResourcesSpec) (nodeqosv1alpha1.NodeQOSResourcesSpec, []problem) {
	t.Helper()
	objects, pods := read(t, manifests)
	return objects.specOf(pods, before)
}

// firstSpecFor is like specFor, for a node that has no spec yet.
func firstSpecFor(t *testing.T, manifests string) (nodeqosv1alpha1.NodeQOSResourcesSpec, []problem) {
	t.Helper()
	return specFor(t, manifests, nodeqosv1alpha1.NodeQOSResourcesSpec{})
}

func TestTheSpecOfANodeHasTheVolumesOfItsPods(t *testing.T) {
	spec, problems := firstSpecFor(t, manifests)
	want := nodeqosv1alpha1.NodeQOSResourcesSpec{
		Written:       true,
		VolumeClasses: []nodeqosv1alpha1.VolumeClass{{Name: "silver", VolumeLimits: qos.VolumeLimits{MaxReadIops: 500, MaxWriteIops: 500}}},
		Volumes: []nodeqosv1alpha1.ClaimedVolume{
			{PodUID: "u1", Container: "main", Path: "/data", Claim: "a/data", Class: "silver"},
			{PodUID: "u1", Container: "setup", Path: "/init", Claim: "a/data", Class: "silver"},
		},
	}
	if diff := cmp.Diff(want, spec); diff != "" || len(problems) > 0 {
		t.Errorf("spec (-want +got):\n%s\nproblems: %v", diff, problems)
	}
}

func TestAVolumeOfModeBlockHasThePathOfItsDevice(t *testing.T) {
	spec, problems := firstSpecFor(t, strings.NewReplacer(asBlock()...).Replace(manifests))
	if len(spec.Volumes) != 1 || spec.Volumes[0].Container != "main" || spec.Volumes[0].Path != "/dev/data" || len(problems) > 0 {
		t.Errorf("the volumes are %+v, the problems %v", spec.Volumes, problems)
	}
}

// asBlock returns the replacements in the manifests that give the claim the mode Block. The container main then has a device instead
// of the mount, and the container setup has neither.
func asBlock() []string {
	return []string{
		"volumeName: pv-1", "volumeName: pv-1, volumeMode: Block", "volumeMounts: [{name: data, mountPath: /init/}]", "tty: false",
		", {name: data, mountPath: /data, subPath: x}]", "], volumeDevices: [{name: data, devicePath: /dev/data}]",
	}
}

func TestAPathThatAContainerMountsTwiceIsOneVolume(t *testing.T) {
	twice := strings.NewReplacer(
		"{name: data, mountPath: /data, subPath: x}", "{name: data, mountPath: /data, subPath: x}, {name: data, mountPath: /data/}, {name: data, mountPath: data}",
	).Replace(manifests)
	spec, _ := firstSpecFor(t, twice)
	if len(spec.Volumes) != 2 || spec.Volumes[0].Path != "/data" || spec.Volumes[1].Path != "/init" {
		t.Errorf("the volumes are %+v, want /data and /init", spec.Volumes)
	}
}

// TestOfTwoVolumesAtAPathTheOneThatHidesTheOtherIsListed has two mounts at /data. The second one hides the first one.
func TestOfTwoVolumesAtAPathTheOneThatHidesTheOtherIsListed(t *testing.T) {
	for name, test := range map[string]struct {
		mounts string
		want   int // the number of listed volumes: /data, if the claim is not hidden there, and /init, which the init container has
	}{
		"the claim hides a directory": {"{name: tmp, mountPath: /data/}, {name: data, mountPath: /data, subPath: x}", 2},
		"a directory hides the claim": {"{name: data, mountPath: /data, subPath: x}, {name: tmp, mountPath: /data/}", 1},
	} {
		t.Run(name, func(t *testing.T) {
			spec, _ := firstSpecFor(t, strings.ReplaceAll(manifests, "{name: data, mountPath: /data, subPath: x}", test.mounts))
			if len(spec.Volumes) != test.want || spec.Volumes[test.want-1].Path != "/init" {
				t.Errorf("the volumes are %+v, want %d", spec.Volumes, test.want)
			}
		})
	}
}

// podsWithMounts replaces the pod in the manifests by pods whose container main mounts the volume data at the given paths.
func podsWithMounts(pods int, paths ...string) string {
	_, text, _ := strings.Cut(manifests, "---\n")
	for i := range pods {
		text += podOf("a", fmt.Sprintf("u%03d", i), paths...)
	}
	return text
}

func paths(number int) (paths []string) {
	for i := range number {
		paths = append(paths, fmt.Sprintf("/data/%02d", i))
	}
	return paths
}

func TestTheClassOfAClaim(t *testing.T) {
	const wanted, current = "volumeAttributesClassName: silver", "\nstatus: {currentVolumeAttributesClassName: silver}"
	const claim = "spec: {volumeName: pv-1, volumeAttributesClassName: silver, storageClassName: fast}"
	for _, test := range []struct {
		name string
		// change has pairs of texts. The first text of each pair is replaced by the second one.
		change         []string
		class, problem string
	}{
		{"is the requested class of the claim", nil, "silver", ""},
		{"is the default of its StorageClass without a request", []string{wanted + ", storageClassName: fast", "storageClassName: limited"}, "gold", ""},
		{"is what the claim requests in spite of a default", []string{"fast}", "limited}"}, "silver", ""},
		{"is none without a request and a default", []string{wanted + ", ", ""}, "", ""},
		{"is none for a missing StorageClass", []string{wanted + ", storageClassName: fast", "storageClassName: gone"}, "", ""},
		{"is none before the claim is bound", []string{"volumeName: pv-1, ", ""}, "", ""},
		{"is none for a driver that is not listed", []string{"driver: topolvm.io", "driver: ebs.csi.aws.com"}, "", ""},
		{"is none for a volume without a driver", []string{"csi: {driver: topolvm.io}", "nfs: {server: s, path: /}"}, "", ""},
		{"is the former one instead of a wrong one", []string{claim, strings.Replace(claim, "silver", "wrong", 1) + current},
			"silver", `parameter "iopz" is unknown`},
		{"is the default instead of one that does not exist", []string{"silver, storageClassName: fast", "lead, storageClassName: limited"}, "gold",
			`VolumeAttributesClass "lead" does not exist`},
		{"is none if the first one is wrong", []string{wanted, "volumeAttributesClassName: wrong"}, "", `parameter "iopz" is unknown`},
		{"must exist", []string{wanted, "volumeAttributesClassName: lead"}, "", `VolumeAttributesClass "lead" does not exist`},
		{"must be of the driver of the volume", []string{wanted, "volumeAttributesClassName: other"}, "",
			`VolumeAttributesClass "other" is for driver ebs.csi.aws.com, but the volume has driver topolvm.io`},
		{"can be that of local volumes", []string{"csi: {driver: topolvm.io}", "local: {path: /vol}", "driverName: topolvm.io\nparameters: {iops: \"500\"}",
			"driverName: kubernetes.io/no-provisioner\nparameters: {iops: \"500\"}"}, "silver", ""},
		{"is also that of an ephemeral volume", []string{"persistentVolumeClaim: {claimName: data}", "ephemeral: {}", "{name: data, namespace", "{name: db-data, namespace",
			"{namespace: a, name: data", "{namespace: a, name: db-data"},
			"silver", ""},
		{"is none for requests, which are reported", []string{wanted + ", storageClassName: fast", "resources: {requests: {iops: 500}}"}, "",
			"the requests of iops and throughput have no effect"},
		{"is the one that the claim names, although it also has requests", []string{wanted, wanted + ", resources: {requests: {iops: 700}}"}, "silver", ""},
		{"does not matter for a pod that has ended", []string{"kind: Pod\n", "kind: Pod\nstatus: {phase: Succeeded}\n"}, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec, problems := firstSpecFor(t, strings.NewReplacer(test.change...).Replace(manifests))
			class := ""
			if len(spec.Volumes) > 0 {
				class = spec.Volumes[0].Class
			}

			if class != test.class {
				t.Errorf("the class is %q, want %q", class, test.class)
			}

			switch {
			case test.problem == "" && len(problems) > 0:
				t.Errorf("problem: %v", problems[0].err)
			case test.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0].err.Error(), test.problem)):
				t.Errorf("problems are %v, want %s", problems, test.problem)
			}
		})
	}
}

// TestAVolumeKeepsItsClassIfItsNextClassIsInvalid uses a claim without a class in its status, and without a default. So only the present
// spec of the node has its former class, silver. Two containers mount the claim.
func TestAVolumeKeepsItsClassIfItsNextClassIsInvalid(t *testing.T) {
	const wanted = "volumeAttributesClassName: silver"
	const missing, invalid = `VolumeAttributesClass "lead" does not exist`, `parameter "iopz" is unknown; the parameters are iops and throughput`
	for _, test := range []struct {
		name string
		// change has pairs of texts. The first text of each pair is replaced by the second one.
		change  []string
		limit   int64
		problem string
	}{
		{"a class that does not exist", []string{wanted, "volumeAttributesClassName: lead"}, 500, missing},
		{"a class with a wrong parameter", []string{wanted, "volumeAttributesClassName: wrong"}, 500, invalid},
		{"its own class, created again with a wrong parameter", []string{`iops: "500"`, `iopz: "500"`}, 500, invalid},
		{"a class that does not exist, while silver was created again with 600", []string{wanted, "volumeAttributesClassName: lead", `iops: "500"`, `iops: "600"`},
			600, missing},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, _ := firstSpecFor(t, manifests)

			for range 2 { // the second call gets the spec that the first call returned
				spec, problems := specFor(t, strings.NewReplacer(test.change...).Replace(manifests), before)
				if len(spec.Volumes) != 2 || len(spec.VolumeClasses) != 1 {
					t.Fatalf("the spec is %+v, want two volumes and one class", spec)
				}
				for _, v := range spec.Volumes {
					if v.Class != "silver" || !strings.Contains(v.Problem, test.problem) {
						t.Errorf("volume %s has class %q and the problem %q, want silver and %s", v.Path, v.Class, v.Problem, test.problem)
					}
				}
				if got := spec.VolumeClasses[0].MaxReadIops; got != test.limit || len(problems) != 1 {
					t.Errorf("the limit is %d, want %d; problems are %v", got, test.limit, problems)
				}
				before = spec
			}
		})
	}
}

// TestLimitsStayIfTheClaimOfARunningPodIsRemoved simulates a user who removes the finalizer of a claim, so that the
// claim can be removed while the pod runs.
func TestLimitsStayIfTheClaimOfARunningPodIsRemoved(t *testing.T) {
	before, _ := firstSpecFor(t, manifests)
	for name, objects := range map[string]string{
		"the claim is removed":  strings.Replace(manifests, "metadata: {name: data, namespace: a, uid: c1}", "metadata: {name: another, namespace: a, uid: c1}", 1),
		"another claim follows": strings.Replace(manifests, "volumeName: pv-1, volumeAttributesClassName: silver, ", "volumeAttributesClassName: gold, ", 1),
	} {
		t.Run(name, func(t *testing.T) {
			spec, problems := specFor(t, objects, before)
			if diff := cmp.Diff(before, spec); diff != "" || len(problems) > 0 || len(spec.Volumes) == 0 {
				t.Errorf("problems %v, spec (-want +got):\n%s", problems, diff)
			}
			_, withoutPod, _ := strings.Cut(objects, "---\n")
			if spec, _ := specFor(t, withoutPod, before); len(spec.Volumes) > 0 {
				t.Errorf("after the pod has ended, the spec has the volumes %v, want none", spec.Volumes)
			}
		})
	}
}

func TestAClaimThatNoLongerNamesAClassHasNoLimits(t *testing.T) {
	before, _ := firstSpecFor(t, manifests)
	if spec, problems := specFor(t, strings.Replace(manifests, "volumeAttributesClassName: silver, ", "", 1), before); len(spec.Volumes) > 0 || len(problems) > 0 {
		t.Errorf("the volumes are %+v, and the problems %v; want none", spec.Volumes, problems)
	}
}
