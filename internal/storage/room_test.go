// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func TestVolumesThatAreLeftOutAreReported(t *testing.T) {
	for _, test := range []struct {
		name, manifests string
		volumes         int
		problem         string
	}{
		{"as many volumes of a pod as an annotation may have", podsWithMounts(1, paths(32)...), 32, ""},
		{"too many volumes of a pod", podsWithMounts(2, paths(33)...), 64, "container main of the pod with UID u000: its pod has more than 32 volumes"},
		{"a long path", podsWithMounts(1, "/"+strings.Repeat("x", 256), "/data"), 1, "its path is longer than 256 bytes"},
		// 851 volumes fit into objectbudget.Volumes bytes: 20 of each of the 41 pods, and one more of the first 31 pods, u000 to u030.
		{"too many volumes of a node", podsWithMounts(41, paths(25)...), 851, "UID u031: the NodeQOSResources object of its node has no room"},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec, problems := firstSpecFor(t, test.manifests)
			if len(spec.Volumes) != test.volumes {
				t.Errorf("%d volumes, want %d", len(spec.Volumes), test.volumes)
			}
			if (len(problems) > 0) != (test.problem != "") || len(problems) > 0 && !strings.Contains(problems[0].err.Error(), test.problem) {
				t.Errorf("problems are %v, want %q", problems, test.problem)
			}
		})
	}
}

// TestAVolumeOfAFullNodeIsNotReplacedByAnother has 1025 volumes, for which the object of a node has no room. A volume
// that was in the object stays, although others precede it.
func TestAVolumeOfAFullNodeIsNotReplacedByAnother(t *testing.T) {
	before := nodeqosv1alpha1.NodeQOSResourcesSpec{Volumes: []nodeqosv1alpha1.ClaimedVolume{{PodUID: "u040", Container: "main", Path: "/data/20"}}}
	spec, _ := specFor(t, podsWithMounts(41, paths(25)...), before)
	if last := spec.Volumes[len(spec.Volumes)-1]; spec.VolumesOmitted == 0 || last.PodUID != "u040" || last.Path != "/data/20" {
		t.Errorf("the spec has %d volumes and omits %d; the last is %+v", len(spec.Volumes), spec.VolumesOmitted, last)
	}
}

// sizeInEtcd returns the size of the object as the API server stores it: with the status of each volume, and with the managed fields that
// server-side apply records for qos-storage and for the publisher.
func sizeInEtcd(t *testing.T, spec nodeqosv1alpha1.NodeQOSResourcesSpec) int {
	t.Helper()
	object := nodeqosv1alpha1.NodeQOSResources{Spec: spec}
	owned, status := map[string]any{}, map[string]any{}
	for _, v := range spec.Volumes {
		inForce := nodeqosv1alpha1.VolumeStatus{ClaimedVolume: v, State: nodeqosv1alpha1.VolumeInForce, Device: "253:3"}
		object.Status.Volumes = append(object.Status.Volumes, inForce)
		key := must.Get(json.Marshal(map[string]string{"podUID": v.PodUID, "container": v.Container, "path": v.Path}))(t)
		none := map[string]any{}
		owned["k:"+string(key)] = map[string]any{".": none, "f:claim": none, "f:class": none, "f:container": none, "f:path": none, "f:podUID": none}
		status["k:"+string(key)] = map[string]any{
			".": none, "f:claim": none, "f:class": none, "f:container": none, "f:path": none, "f:podUID": none, "f:state": none, "f:device": none,
		}
	}
	for manager, fields := range map[string]map[string]any{
		"qos-storage": {"f:spec": map[string]any{"f:volumes": owned}}, "qos-kubelet-shim": {"f:status": map[string]any{"f:volumes": status}},
	} {
		raw := must.Get(json.Marshal(fields))(t)
		object.ManagedFields = append(object.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(string(raw))})
	}
	data := must.Get(json.Marshal(object))(t)
	return len(data)
}

// TestTheSpecOfANodeFitsIntoAnObject uses a user who mounts one claim at 32 paths in each of many pods. JSON writes some characters as six
// bytes. The claim of another namespace keeps its limits, and at least 60 of the user's pods have limits, or all if there are fewer.
func TestTheSpecOfANodeFitsIntoAnObject(t *testing.T) {
	const most = 800 << 10 // about half of what etcd accepts, because the object has other lists, too
	for name, character := range map[string]string{"letters": "x", "characters that JSON escapes": "<"} {
		for _, count := range []int{4, 31, 110} {
			text := manifests + claimOf("z")
			for i := range count {
				var paths []string
				for j := range 32 {
					paths = append(paths, fmt.Sprintf("/%02d%s", j, strings.Repeat(character, 253)))
				}
				text += podOf("z", fmt.Sprintf("11111111-2222-3333-4444-%012d", i), paths...)
			}
			spec, problems := firstSpecFor(t, text)
			if size := sizeInEtcd(t, spec); size > most {
				t.Errorf("%s: %d pods of one user make an object of %d bytes, want at most %d", name, count, size, most)
			}

			with := map[string]int{}
			for _, v := range spec.Volumes {
				with[v.PodUID]++
			}
			// Pod a/db has the UID u1, and two mounts. A mount of the user takes less than 8 kB of the budget of 576 KiB, so 60 mounts fit. Each
			// pod gets one before any pod gets a second one.
			if with["u1"] != 2 || len(with) < min(count, 60)+1 {
				t.Errorf("%s: %d of %d pods have volumes; pod a/db has %d, want 2", name, len(with), count+1, with["u1"])
			}
			if int(spec.VolumesOmitted) != len(problems) || len(spec.Volumes)+len(problems) != 32*count+2 {
				t.Errorf("%s: %d volumes, %d omitted, %d problems; want a problem for each omitted volume", name, len(spec.Volumes), spec.VolumesOmitted, len(problems))
			}
		}
	}
}

func TestANodeHasALimitedNumberOfClasses(t *testing.T) {
	text := manifests
	for i := range maxClasses + 1 {
		ns := fmt.Sprintf("n%03d", i)
		text += strings.Replace(claimOf(ns), "silver", ns, 1) + podOf(ns, "p"+ns, "/data") +
			fmt.Sprintf("---\nkind: VolumeAttributesClass\nmetadata: {name: %s}\ndriverName: topolvm.io\nparameters: {iops: \"9\"}\n", ns)
	}
	spec, problems := firstSpecFor(t, text)
	if len(spec.VolumeClasses) != maxClasses || len(problems) == 0 || !strings.Contains(problems[0].err.Error(), "more than 256 classes") {
		t.Errorf("%d classes, want %d; the problems are %v", len(spec.VolumeClasses), maxClasses, problems)
	}
}
