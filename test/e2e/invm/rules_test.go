// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"regexp"
	"testing"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// imageRules: a rule matches the containers of an image by its digest. It needs containerd, because CRI-O does not report
// digests to plugins.
func imageRules(t *testing.T, n *node) {
	listed, err := output("ctr", "-a", n.kind.socket, "-n", "k8s.io", "images", "list", "name=="+image)
	must(t, err)
	digest := regexp.MustCompile("sha256:[0-9a-f]{64}").FindString(listed)
	n.offer(t, fmt.Sprintf(`
- name: %s
  match: [{name: image, imageDigests: [%s], class: late}]
  classes: [{name: late}]
  linux: {classes: {late: {memory: {oomGroup: true}}}}
`, profileQoS, digest), profileQoS, "late")

	p := n.runPod(t, "image-rules", nil)
	c := p.run(t, spec{name: "main"})
	n.wantAssignment(t, p, "main", &qos.Assignment{Name: profileQoS, Class: "late", Source: qos.Source_SOURCE_RULE, RequestedBy: "image"})
	c.wantValues(t, map[string]string{"memory.oom.group": "1"})
}
