// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"strings"
	"testing"
)

// podOf returns a pod with one container, which mounts the claim data at some paths.
func podOf(namespace, uid string, paths ...string) string {
	var mounts []string
	for _, path := range paths {
		mounts = append(mounts, "{name: data, mountPath: \""+path+"\"}")
	}
	return fmt.Sprintf(`---
kind: Pod
metadata: {name: %[2]s, namespace: %[1]s, uid: %[2]s}
spec:
  nodeName: node-1
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
  containers: [{name: main, volumeMounts: [%[3]s]}]
`, namespace, uid, strings.Join(mounts, ", "))
}

// claimOf returns a claim with the name data in a namespace, and its volume. The claim requests class silver.
func claimOf(namespace string) string {
	return fmt.Sprintf(`---
kind: PersistentVolumeClaim
metadata: {name: data, namespace: %[1]s, uid: c-%[1]s}
spec: {volumeName: pv-%[1]s, volumeAttributesClassName: silver, storageClassName: fast}
---
kind: PersistentVolume
metadata: {name: pv-%[1]s}
spec: {csi: {driver: topolvm.io}, claimRef: {namespace: %[1]s, name: data, uid: c-%[1]s}}
`, namespace)
}

// TestARemovedClaimDoesNotKeepTheFormerLimitsOfOtherClaims uses a user of namespace z, who removes the finalizer of a claim and deletes the
// claim while its pod runs. Then the administrator makes the class again with other limits. The pod's volume keeps class silver of the
// former spec. The claim a/data has class silver, too, and a spec has each class only once. So both must get the new limits.
func TestARemovedClaimDoesNotKeepTheFormerLimitsOfOtherClaims(t *testing.T) {
	theirs := podOf("z", "u2", "/data")
	spec, _ := firstSpecFor(t, manifests+theirs+claimOf("z"))
	if len(spec.Volumes) != 3 { // two of the manifests, and one of theirs
		t.Fatalf("the spec is %+v, want three volumes", spec)
	}

	for range 3 { // each call gets the spec that the previous one returned
		spec, _ = specFor(t, strings.Replace(manifests, `iops: "500"`, `iops: "9000"`, 1)+theirs, spec)
	}
	if len(spec.Volumes) != 3 || len(spec.VolumeClasses) != 1 || spec.VolumeClasses[0].MaxReadIops != 9000 {
		t.Errorf("the spec is %+v, want three volumes with 9000 operations a second", spec)
	}
}

// TestPresentLimitsOfAClassWinOverFormerOnes uses two claims of class silver with volumes of two drivers. The administrator makes the class
// again for the second driver.
func TestPresentLimitsOfAClassWinOverFormerOnes(t *testing.T) {
	ofLocal := strings.Replace(claimOf("z"), "csi: {driver: topolvm.io}", "local: {path: /vol}", 1)
	before, _ := firstSpecFor(t, manifests)

	again := strings.Replace(manifests, "driverName: topolvm.io\nparameters: {iops: \"500\"}",
		"driverName: kubernetes.io/no-provisioner\nparameters: {iops: \"9000\"}", 1)
	for _, uid := range []string{"t9", "v9"} { // before and after u1, the UID of the pod in the manifests
		spec, problems := specFor(t, again+podOf("z", uid, "/data")+ofLocal, before)

		// The pod of the manifests has two volumes. The only problem is that silver is no class of the driver of their claim any more.
		if len(spec.Volumes) != 3 || len(spec.VolumeClasses) != 1 || spec.VolumeClasses[0].MaxReadIops != 9000 || len(problems) != 1 {
			t.Errorf("the spec is %+v, want 9000 operations a second; the problems are %v", spec, problems)
		}
	}
}

// TestAHiddenMountDoesNotChooseTheClass mounts two volumes at one path, written as /data, /data/ or data, which the API server accepts. The
// runtime mounts them in the order of volumeMounts, so the last one hides the other. The volume `lenient` has a claim of class gold, and
// `strict` the claim `data` of the manifests, of class silver.
func TestAHiddenMountDoesNotChooseTheClass(t *testing.T) {
	lenient := strings.NewReplacer("c-z", "c2", "pv-z", "pv-9", "namespace: z", "namespace: a", "name: data", "name: lenient", "silver", "gold").Replace(claimOf("z"))
	for name, test := range map[string]struct{ mounts, class string }{
		"the last one is strict":           {"{name: lenient, mountPath: /data/}, {name: strict, mountPath: /data}", "silver"},
		"the last one is lenient":          {"{name: strict, mountPath: /data/}, {name: lenient, mountPath: data}", "gold"},
		"a volume without a claim is last": {"{name: lenient, mountPath: /data/}, {name: tmp, mountPath: /data}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec, _ := firstSpecFor(t, manifests+lenient+fmt.Sprintf(`---
kind: Pod
metadata: {name: p, namespace: a, uid: u5}
spec:
  nodeName: node-1
  volumes:
  - {name: lenient, persistentVolumeClaim: {claimName: lenient}}
  - {name: strict, persistentVolumeClaim: {claimName: data}}
  - {name: tmp, emptyDir: {}}
  containers: [{name: main, volumeMounts: [%s]}]
`, test.mounts))
			class := ""
			for _, v := range spec.Volumes {
				if v.PodUID == "u5" {
					class += v.Class
				}
			}
			if class != test.class {
				t.Errorf("the volume has class %q, want %q", class, test.class)
			}
		})
	}
}

// TestAClaimThatOnlyNamesAVolumeHasNoEntry uses the claim z/data, whose volumeName is pv-1 although pv-1 is not bound to it. Every user
// may set volumeName, and also spec.nodeName of a pod. If such claims had entries, pods that never start would fill the object of the node.
func TestAClaimThatOnlyNamesAVolumeHasNoEntry(t *testing.T) {
	thief := strings.Replace(claimOf("z"), "volumeName: pv-z", "volumeName: pv-1", 1)
	for name, change := range map[string][]string{
		"the volume is bound to the claim a/data":           nil,
		"the volume is bound to a claim that was removed":   {"uid: c1}}\n", "uid: former}}\n"},
		"the volume is not bound":                           {", claimRef: {namespace: a, name: data, uid: c1}", ""},
		"the volume is reserved for the claim, but unbound": {"namespace: a, name: data, uid: c1}}\n", "namespace: z, name: data}}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer(change...).Replace(manifests)
			spec, problems := firstSpecFor(t, text+thief+podOf("z", "u5", "/data"))
			want := 2 // the volumes of a/data, which is bound unless the manifests are changed
			if change != nil {
				want = 0
			}
			if len(spec.Volumes) != want || len(problems) > 0 {
				t.Errorf("the spec has %+v, want %d volumes; the problems are %v", spec.Volumes, want, problems)
			}
		})
	}
}
