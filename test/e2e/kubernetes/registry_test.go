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

// The releases that the tests publish. containerd uses HTTP for a registry on localhost.
const (
	registry      = "localhost:5000/qos"
	releasedChart = "oci://" + registry + "/charts/qos-nri-plugin"
	oldVersion    = "0.1.0" // published by publishBefore
	newVersion    = "0.2.0" // published by makeRelease
	// newField is a field of the status of NodeQOSResources that only the new version has. Only --follow-claims makes use of it.
	newField = "observedGeneration"
)

// buildPublisher builds two programs into `dir`: publish, which publishes a release, and a registry. It also copies the
// programs that "make image" has built into `dir`. They serve as the programs of the previous version.
func buildPublisher(dir string) error {
	build := exec.Command("go", "-C", "../../../tools/image", "build", "-o", filepath.Join(dir, "bin")+"/",
		"./publish", "github.com/google/go-containerregistry/cmd/registry")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build publish: %w\n%s", err, output)
	}
	return os.CopyFS(filepath.Join(dir, "release", platform), os.DirFS(filepath.Join("../../../bin", platform)))
}

// startRegistry starts an empty registry.
func (n *node) startRegistry(t *testing.T) {
	t.Helper()
	server := n.process("registry", n.program("registry"), "-port=5000")
	server.mustStart(t)
	t.Cleanup(func() { server.mustEnd(t, syscall.SIGKILL) })
	untilDone(t, "the registry accepts a release", func() (string, error) {
		return n.machine.run(n.program("publish"), "-registry", registry, "-name", "qos-nri-plugin", "-version", "v"+oldVersion, "-check")
	})
}

// publishBefore publishes the previous version, and returns the name of its image. The programs of both versions have the
// same source but different version numbers, so the images have different digests. The previous version's CRD lacks
// newField. The API server would refuse to write this field, but the programs do not write it.
func (n *node) publishBefore(t *testing.T) string {
	t.Helper()
	chart := filepath.Join(t.TempDir(), "chart")
	mustRun(t, "cp", "--recursive", "--dereference", deploy+"chart", chart)
	file := filepath.Join(chart, "files/kubernetes/crd.yaml")
	crd, err := os.ReadFile(file)
	must(t, err)
	const field = "\n              " + newField + ":\n"
	if strings.Count(string(crd), field) != 1 {
		t.Fatalf("%s must have the field status.%s exactly once", file, newField)
	}

	must(t, os.WriteFile(file, []byte(strings.Replace(string(crd), field, "\n              oldField:\n", 1)), 0o644))

	return publishedImage(t, exec.Command(n.program("publish"), "-registry", registry, "-name", "qos-nri-plugin", "-version", "v"+oldVersion,
		"-programs", filepath.Join(n.dir, "release"), "-platforms", platform, "-entrypoint", "qos-nri-plugin", "-chart", chart,
		"-documents", "../../../LICENSE"))
}

// taggedCheckout is a script that copies the files of this checkout into a new repository, with the tag of a release.
const taggedCheckout = `set -eu
cd ../../..
git ls-files -z --cached --others --exclude-standard --deduplicate |
	xargs -0 sh -c 'for f; do [ ! -e "$f" ] && [ ! -L "$f" ] || printf "%s\0" "$f"; done' - >"$1.files"
mkdir "$1"
tar --null --files-from="$1.files" --create | tar -C "$1" --extract
cd "$1"
git init -q
git add --all
git -c user.name=t -c user.email=t@t.example commit -q -m "$2"
git tag "$2"`

// makeRelease runs "make release" in a copy of the checkout, for the platform of the node, without signatures. It returns the name of the
// image. The build needs no network, because prepare has built the same packages.
func (n *node) makeRelease(t *testing.T) string {
	t.Helper()
	checkout := filepath.Join(t.TempDir(), "checkout")
	mustRun(t, "sh", "-c", taggedCheckout, "-", checkout, "v"+newVersion)
	release := exec.Command("make", "release", "VERSION=v"+newVersion, "REGISTRY="+registry, "KEY=none",
		"IMAGE_PLATFORMS="+platform, "PLUGIN_PLATFORMS="+platform)
	release.Dir = checkout
	release.Env = append(os.Environ(), "GOPROXY=off")
	return publishedImage(t, release)
}

// publishedImage runs a command that publishes an image. It returns the name of the image with its digest.
func publishedImage(t *testing.T, publish *exec.Cmd) string {
	t.Helper()
	printed, err := publish.CombinedOutput()
	image := regexp.MustCompile(`(?m)^image: (\S+@sha256:\S+)$`).FindSubmatch(printed)
	if err != nil || image == nil {
		t.Fatalf("%v: %v\n%s", publish, err, printed)
	}
	return string(image[1])
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
	n.awaitInField(t, "the node has pulled "+image, `Successfully pulled image "`+image, "{.items[*].message}", "-n", "qos-system", "events")
}
