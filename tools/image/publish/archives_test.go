// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// platforms returns the platforms for which the test builds kubectl-qos. They cover each operating system and each architecture
// of a release, but not each combination, because each build without Go's cache takes more than a minute.
func platforms() []string {
	return []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64"}
}

// archiveOf returns the name of the archive for a platform.
func archiveOf(platform string) string {
	return "kubectl-qos_" + strings.ReplaceAll(platform, "/", "_") + ".tar.gz"
}

// programOf returns the name of the program in the archive for a platform.
func programOf(platform string) string {
	if strings.HasPrefix(platform, "windows/") {
		return "kubectl-qos.exe"
	}
	return "kubectl-qos"
}

// checkSum checks that the file SHA256SUMS has the checksum of a file.
func checkSum(t *testing.T, sums, name string, data []byte) {
	t.Helper()
	if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name); !strings.Contains(sums, line) {
		t.Errorf("SHA256SUMS does not have %q: %s", line, sums)
	}
}

// krew is the path of the program krew, the plugin manager of kubectl.
type krew string

func buildKrew(t *testing.T) krew {
	t.Helper()
	program := filepath.Join(t.TempDir(), "krew")
	command(t, "../../krew", nil, "go", "build", "-o", program, "sigs.k8s.io/krew/cmd/krew")
	return krew(program)
}

// install checks that krew installs kubectl-qos on a platform, from the manifest and the archive in the directory release.
// krew validates the manifest, and compares the manifest's checksum with the archive.
func (k krew) install(t *testing.T, release, platform string) {
	t.Helper()
	root, manifest := t.TempDir(), filepath.Join(release, "qos.yaml")
	system, arch, _ := strings.Cut(platform, "/")
	env := []string{"KREW_ROOT=" + root, "KREW_OS=" + system, "KREW_ARCH=" + arch, "KREW_NO_UPGRADE_CHECK=1"}
	command(t, release, env, string(k), "install", "--manifest="+manifest, "--archive="+archiveOf(platform))

	installed := filepath.Join(root, "store/qos/v0.2.0")
	for _, name := range []string{"LICENSE", "third-party-licences.txt"} {
		if _, err := os.Stat(filepath.Join(installed, name)); err != nil {
			t.Error(err)
		}
	}

	info := must(buildinfo.ReadFile(filepath.Join(root, "bin", programOf(platform))))(t)

	for _, want := range []debug.BuildSetting{{Key: "GOOS", Value: system}, {Key: "GOARCH", Value: arch}} {
		if !slices.Contains(info.Settings, want) {
			t.Errorf("the program for %s has the settings %v", platform, info.Settings)
		}
	}

	text, err := os.ReadFile(manifest)
	if uri := "/releases/download/v0.2.0/" + archiveOf(platform) + "\n"; err != nil || !strings.Contains(string(text), uri) {
		t.Errorf("the manifest does not have the URI %q (%v)", uri, err)
	}
}

// checkArchivesSBOM checks that the SBOM of the archives in a directory has the program of each platform, and only modules
// whose licences are in each archive.
func checkArchivesSBOM(t *testing.T, text, release string) {
	t.Helper()
	var document spdx.Document
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}

	programs, modules := map[string]string{}, []string{}
	for _, p := range document.Packages {
		if p.PackageFileName != "" {
			programs[p.PackageFileName] = p.PackageVersion + " " + p.PackageChecksums[0].Value
		} else if p.PackageName != "stdlib" {
			modules = append(modules, p.PackageName)
		}
	}

	for _, name := range []string{"k8s.io/client-go", "github.com/inconshreveable/mousetrap"} { // the second one only on Windows
		if !slices.Contains(modules, name) {
			t.Errorf("the SBOM does not list %s: %q", name, modules)
		}
	}

	for _, platform := range platforms() {
		archive := filepath.Join(release, archiveOf(platform))
		program := command(t, ".", nil, "tar", "-xzOf", archive, programOf(platform))
		name, want := platform+"/"+programOf(platform), fmt.Sprintf("v0.2.0 %x", sha256.Sum256([]byte(program)))
		if programs[name] != want {
			t.Errorf("the SBOM has %q for %s, want %q", programs[name], name, want)
		}
		licences := command(t, ".", nil, "tar", "-xzOf", archive, "third-party-licences.txt")
		for _, module := range modules {
			if !strings.Contains(licences, "\n==== "+module+" ") {
				t.Errorf("%s does not have the licence of %s", archiveOf(platform), module)
			}
		}
	}
}
