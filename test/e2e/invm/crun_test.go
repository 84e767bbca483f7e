// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"os"
	"path/filepath"
	"testing"
)

// crunProgram is crun on machines that have it.
const crunProgram = "/usr/bin/crun"

func hasCrun() bool {
	_, err := os.Stat(crunProgram)
	return err == nil
}

// crunHandler is a runtime handler of containerd for crun, with or without the systemd cgroup driver.
const crunHandler = `
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun]
runtime_type = "io.containerd.runc.v2"
options.BinaryName = %q
options.SystemdCgroup = %t
`

// runByCrun runs cases in a pod whose containers crun runs, instead of runc: classes of two resources, on two disks, at the creation,
// after an update and after a resize.
func runByCrun(t *testing.T, n *node) {
	n.handler = "crun"
	defer func() { n.handler = "" }()
	p := n.runPod(t, "by-crun", requests())
	// crun keeps its state in another file than runc.
	if _, err := os.Stat(filepath.Join("/run/containerd/runc/k8s.io", p.id, "status")); err != nil {
		t.Fatalf("the pod is not run by crun: %v", err)
	}

	for _, c := range []nodeCase{
		{name: "containers and what is exec'd into them are in their groups", test: groups},
		{name: "an update moves all of a container or nothing", test: changedClass},
		{name: "classes survive a resize of the container", test: resizes},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, p); n.holds(t) })
	}
}
