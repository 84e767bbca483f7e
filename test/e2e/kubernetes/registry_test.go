// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// platform is the platform of the node.
const platform = "linux/" + runtime.GOARCH

// The release of publishRelease. containerd uses HTTP for a registry on localhost.
const (
	registry        = "localhost:5000/qos"
	releasedChart   = "oci://" + registry + "/charts/qos-nri-plugin"
	releasedVersion = "0.1.0"
)

// buildPublisher builds into dir the program that publishes a release, a registry, and the programs of the release, which "make image"
// has built.
func buildPublisher(dir string) error {
	build := exec.Command("go", "-C", "../../../tools/image", "build", "-o", filepath.Join(dir, "bin")+"/",
		"./publish", "github.com/google/go-containerregistry/cmd/registry")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build publish: %w\n%s", err, output)
	}
	return os.CopyFS(filepath.Join(dir, "release", platform), os.DirFS(filepath.Join("../../../bin", platform)))
}

// publishRelease starts a registry and publishes a release in it, as scripts/release.sh does. It returns the name of the image, which has
// a digest.
func (n *node) publishRelease(t *testing.T) string {
	t.Helper()
	server := n.process("registry", n.program("registry"), "-port=5000")
	server.mustStart(t)
	t.Cleanup(func() { server.mustEnd(t, syscall.SIGKILL) })

	publish := []string{n.program("publish"), "-registry", registry, "-name", "qos-nri-plugin", "-version", "v" + releasedVersion}
	until(t, "the registry accepts a release", func() (bool, string) {
		output, err := n.machine.run(append(publish, "-check")...)
		return err == nil, output
	})
	printed, err := n.machine.run(append(publish, "-programs", filepath.Join(n.dir, "release"), "-platforms", platform,
		"-entrypoint", "qos-nri-plugin", "-chart", deploy+"chart", "-documents", "../../../LICENSE")...)
	image := regexp.MustCompile(`(?m)^image: (\S+@sha256:\S+)$`).FindStringSubmatch(printed)
	if err != nil || image == nil {
		t.Fatalf("publish: %v\n%s", err, printed)
	}
	return image[1]
}

// pulled checks that all pods of the installation run an image, and waits until an event says that the node has pulled it.
func (n *node) pulled(t *testing.T, image string) {
	t.Helper()
	images := n.kubectl(t, "-n", "qos-system", "get", "pods", "-o", `jsonpath={range .items[*].status.containerStatuses[*]}{.imageID}{"\n"}{end}`)
	for used := range strings.FieldsSeq(images) {
		if used != image {
			t.Errorf("a container of the release runs the image %s, want %s", used, image)
		}
	}
	until(t, "the node has pulled "+image, func() (bool, string) {
		events, _ := n.try("-n", "qos-system", "get", "events", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(events, `Successfully pulled image "`+image), events
	})
}
