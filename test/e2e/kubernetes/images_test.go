// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"path/filepath"
	"syscall"
	"testing"
)

// images has the archives of the container images that every node needs.
var images = []string{"workload.tar", "image.tar"}

// onlyImages configures a containerd that has images and runs no containers.
const onlyImages = `version = 3
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]
`

// unpackImages unpacks the images into a root directory of containerd.
func unpackImages(t *testing.T, n *node, root string) {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "containerd.sock")
	containerd := n.process("images", n.program("containerd"), "--config", n.write(t, "images.toml", onlyImages),
		"--root", root, "--state", filepath.Join(dir, "state"), "--address", socket)
	containerd.mustStart(t)
	ctr := []string{n.program("ctr"), "--address", socket, "--namespace", "k8s.io"}
	untilDone(t, "containerd answers", func() (string, error) { return (&local{}).run(append(ctr, "version")...) })

	for _, image := range images {
		mustRun(t, append(ctr, "images", "import", filepath.Join(n.dir, image))...)
	}

	containerd.mustEnd(t, syscall.SIGTERM)
}
