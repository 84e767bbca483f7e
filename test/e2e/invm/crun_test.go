// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// crunProgram is the path of crun. Not every machine has it.
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

// crioCrunHandler is a runtime handler of CRI-O for crun.
const crioCrunHandler = `
[crio.runtime.runtimes.crun]
runtime_path = %q
runtime_root = "/run/crun"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = %q
`

// runByCrun runs cases in a pod whose OCI runtime is crun instead of runc. The cases test classes of two resources and
// throttles on two disks: at the creation, after an update and after a resize.
func runByCrun(t *testing.T, n *node) {
	n.handler = "crun"
	defer func() { n.handler = "" }()
	p := n.runPod(t, "by-crun", requests())
	resident := p.run(t, spec{name: "resident"})
	// The state file of crun has another name than that of runc.
	_, inContainerd := os.Stat(filepath.Join("/run/containerd/runc/k8s.io", resident.id, "status"))
	_, inCRIO := os.Stat(filepath.Join("/run/crun", resident.id, "status"))
	if inContainerd != nil && inCRIO != nil {
		t.Fatalf("crun does not run the container: %v", errors.Join(inContainerd, inCRIO))
	}

	for _, c := range []nodeCase{
		{name: "containers and processes exec'd into them are in their groups", test: groups, on: everywhere},
		{name: "an update moves all processes of a container or none", test: changedClass, on: everywhere},
		{name: "classes survive a resize of the container", test: resizes, on: everywhere},
		{name: "a container whose class cannot be enforced does not start", test: startsOutside, on: crio},
	} {
		c.run(t, p)
	}
}
