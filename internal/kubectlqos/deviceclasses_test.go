// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// classesOfPods is a class file with a resource of pods, and with a class whose name an object cannot have.
const classesOfPods = `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  blockio: {Classes: {gold: [{Devices: [/dev/vda], ThrottleReadBps: 9M}], Fast_1: [{Devices: [/dev/vda], ThrottleReadBps: 9M}]}}
- name: vendor.example/pod-io
  scope: pod
  blockio: {Classes: {slow: [{Devices: [/dev/vda], ThrottleReadBps: 9M}]}}
`

// TestDeviceClassesPrintsOneForEachClass compares four texts of each DeviceClass: its name, its extended resource, and the resource and the
// class that its CEL expression selects.
func TestDeviceClassesPrintsOneForEachClass(t *testing.T) {
	got, _ := fileRun{files: map[string]string{"c.yaml": classesOfPods}, args: []string{"device-classes", "--class-files", "DIR/c.yaml"}}.run(t)
	var seen []string
	for document := range strings.SplitSeq(got.Out, "---\n") {
		var values []string
		for line := range strings.Lines(document) {
			for _, key := range []string{"name: ", "extendedResourceName: ", ".resource == ", ".class == "} {
				if _, value, found := strings.Cut(strings.TrimSpace(line), key); found {
					values = append(values, strings.TrimSuffix(value, " &&"))
				}
			}
		}
		seen = append(seen, strings.Join(values, " "))
	}
	want := []string{
		"blockio.fast-1-f947021c qos.noderesource.dev/blockio.Fast_1 'k8s.io/blockio' 'Fast_1'",
		"blockio.gold qos.noderesource.dev/blockio.gold 'k8s.io/blockio' 'gold'",
		"vendor.example.pod-io.slow vendor.example/pod-io.slow 'vendor.example/pod-io' 'slow'",
	}
	if diff := cmp.Diff(want, seen); diff != "" || got.Code != 0 || got.Errors != "" {
		t.Errorf("exit code %d, %s(-want +got):\n%s", got.Code, got.Errors, diff)
	}
}
