// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// volumesGetClasses requests VolumeAttributesClasses for volumes whose CSI driver can modify them. The external-resizer calls the driver.
// Then "qos-storage defaults" writes the default class of the StorageClass into the claims that have none.
func volumesGetClasses(t *testing.T, d *database) {
	const class = `{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, metadata: {name: %s}, driverName: ` + csiDriver + `, parameters: {%s}}` + "\n---\n"
	d.apply(t, fmt.Sprintf(class, "driver-gold", `iops: "1000"`)+fmt.Sprintf(class, "driver-silver", `iops: "500"`)+fmt.Sprintf(class, "driver-wrong", `iopz: "1"`))
	t.Cleanup(func() {
		d.kubectl(t, "delete", "volumeattributesclass", "driver-gold", "driver-silver", "driver-wrong", "--ignore-not-found", "--wait=false") // claims name them
	})

	d.request(t, "{name: data, storage: 20Mi, volumeAttributesClassName: driver-gold}")
	d.await(t, "condition=Ready")
	d.want(t, "data", "0 20Mi/20Mi, 1 20Mi/20Mi, 2 20Mi/20Mi")
	d.modified(t, 3, "data", "driver-gold", "iops=1000")
	wantLines(t, d.in(t, "get", "ssv"), "db 20Mi driver-gold True 3 AllReplicasReady")

	d.request(t, "{name: data, volumeAttributesClassName: driver-wrong}")
	d.await(t, `jsonpath={.status.conditions[?(@.type=="Stalled")].reason}=VolumeFailed`)
	d.reported(t, "VolumeModifyFailed", "the driver cannot give the volume the class: ")
	until(t, "a claim has the event of the external-resizer", func() (bool, string) {
		seen, _ := d.try("-n", d.namespace, "get", "events", "--field-selector=reason=VolumeModifyFailed,involvedObject.kind=PersistentVolumeClaim", "-o", "name")
		return seen != "", seen
	})
	d.request(t, "{name: data, volumeAttributesClassName: driver-silver}") // repairs it
	d.await(t, "jsonpath={.status.observedGeneration}=3")
	d.await(t, "condition=Ready")
	d.modified(t, 3, "data", "driver-silver", "iops=500")

	d.writesDefaults(t)
	d.kubectl(t, "annotate", "storageclass", "grows", "qos.noderesource.dev/default-volume-attributes-class=driver-gold")
	t.Cleanup(func() {
		d.kubectl(t, "annotate", "storageclass", "grows", "qos.noderesource.dev/default-volume-attributes-class-")
	})
	d.modified(t, 3, "log", "driver-gold", "iops=1000")
	d.modified(t, 3, "data", "driver-silver", "iops=500")
	d.scale(t, 4) // the volumes of the new replica get a class only after their creation
	d.modified(t, 4, "log", "driver-gold", "iops=1000")
	d.modified(t, 4, "data", "driver-silver", "iops=500")

	d.kubectl(t, "delete", "volumeattributesclass", "driver-wrong", within) // no claim names it
	d.kubectl(t, "delete", "volumeattributesclass", "driver-gold", "--wait=false")
	if seen := d.kubectl(t, "get", "volumeattributesclass", "driver-gold", "-o", "jsonpath={.metadata.finalizers}"); !strings.Contains(seen, "vac-protection") {
		t.Errorf("a deleted class that claims name has the finalizers %s, want vac-protection", seen)
	}
}

// writesDefaults runs "qos-storage defaults" for the driver of the volumes until the test ends.
func (d *database) writesDefaults(t *testing.T) {
	t.Helper()
	manifests := []string{"-f", deploy + "storage-defaults/rbac.yaml", "-f", deploy + "storage-defaults/confine.yaml"}
	d.kubectl(t, append([]string{"apply"}, manifests...)...)
	t.Cleanup(func() { d.kubectl(t, append([]string{"delete"}, manifests...)...) })
	d.startController(t, "defaults", "--drivers="+csiDriver)
}

// modified waits until the claims of a template have a class in their spec and status. The driver must have got its parameters.
func (d *database) modified(t *testing.T, replicas int, template, class, parameters string) {
	t.Helper()
	for i := range replicas {
		claim := fmt.Sprintf("%s-db-%d", template, i)
		want := class + " " + class
		d.awaitField(t, "claim "+claim+" has the class "+class, want,
			"{.spec.volumeAttributesClassName} {.status.currentVolumeAttributesClassName}", "-n", d.namespace, "pvc", claim)
		volume := d.in(t, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
		text, err := os.ReadFile(filepath.Join(d.volumes, "attributes."+volume))
		must(t, err)
		if string(text) != parameters {
			t.Errorf("the driver has given the volume of claim %s %s, want %s", claim, text, parameters)
		}
	}
}
