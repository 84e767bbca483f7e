// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/tools/image/child"
)

// checkout returns a copy of the files of this checkout, in a repository of its own with the tags v0.1.0 and v0.2.0.
func checkout(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkout")
	const copyFiles = `git -C ../../.. ls-files -z --cached --others --exclude-standard --deduplicate |
		(cd ../../.. && xargs -0 sh -c 'for f; do [ ! -e "$f" ] && [ ! -L "$f" ] || printf "%s\0" "$f"; done' -) >"$1.files"
		mkdir "$1" && tar -C ../../.. --null --files-from="$1.files" --create | tar -C "$1" --extract`

	command(t, ".", nil, "sh", "-c", copyFiles, "-", dir)
	git(t, dir, "init", "-q")
	for _, commit := range [][2]string{{"Begin", "v0.1.0"}, {"rdt: allocate more", ""}, {"blockio: limit less", ""}, {"rdt: allocate less", "v0.2.0"}} {
		git(t, dir, "add", "--all")
		git(t, dir, "commit", "-q", "--allow-empty", "-m", commit[0])
		if commit[1] != "" {
			git(t, dir, "tag", commit[1])
		}
	}

	return dir
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	command(t, dir, []string{"GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000"}, "git",
		append([]string{"-c", "user.name=t", "-c", "user.email=t@t.example", "-c", "core.autocrlf=false"}, args...)...)
}

func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	c := child.Command(t, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	output, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, output)
	}
	return string(output)
}

// makeRelease runs "make release".
func makeRelease(t *testing.T, dir string, variables ...string) (string, error) {
	t.Helper()
	c := child.Command(t, "make", append([]string{"release"}, variables...)...)
	c.Dir = dir
	output, err := c.CombinedOutput()
	return string(output), err
}

func TestARelease(t *testing.T) {
	key, keyFile := newKey(t)
	t.Setenv("COSIGN_PASSWORD", "secret")
	registry, dir := startRegistry(t), checkout(t)
	printed, err := makeRelease(t, dir, "VERSION=v0.2.0", "REGISTRY="+registry, "KEY="+keyFile, "PLUGIN_PLATFORMS="+strings.Join(platforms(), " "))
	if err != nil {
		t.Fatalf("%v:\n%s", err, printed)
	}

	file := func(name string) string {
		return string(must(os.ReadFile(filepath.Join(dir, "bin/release", name)))(t))
	}

	sums := file("SHA256SUMS")

	t.Run("image and chart are in the registry, and signed", func(t *testing.T) {
		for _, kind := range []string{"image", "chart"} {
			signatureOf(t, published(t, printed, kind))
		}

		programs := must(filepath.Glob(filepath.Join(dir, "cmd/qos-*")))(t)

		for _, arch := range []string{"amd64", "arm64"} {
			image := must(remote.Image(published(t, printed, "image").Context().Tag("v0.2.0"), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch})))(t)

			if layers, err := image.Layers(); err != nil || len(layers) != 1+len(programs) {
				t.Errorf("the image for %s has %d layers (%v), want the documents and each of %q", arch, len(layers), err, programs)
			}
		}

		block, _ := pem.Decode([]byte(file("cosign.pub")))
		if public, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil || !key.PublicKey.Equal(public) {
			t.Errorf("cosign.pub is not the public key of the release (%v)", err)
		}
	})
	t.Run("the checksums are signed", func(t *testing.T) {
		signature, err := base64.StdEncoding.DecodeString(file("SHA256SUMS.sig"))
		hash := sha256.Sum256([]byte(sums))
		if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, hash[:], signature) {
			t.Errorf("SHA256SUMS.sig is not a signature by the key (%v)", err)
		}
	})
	t.Run("a build in another directory has the same digests", func(t *testing.T) {
		other := checkout(t)
		platform := "linux/" + runtime.GOARCH
		again, err := makeRelease(t, other, "VERSION=v0.2.0", "REGISTRY="+registry, "KEY=none", "PLUGIN_PLATFORMS="+platform)
		if err != nil {
			t.Fatalf("%v:\n%s", err, again)
		}

		for _, kind := range []string{"image", "chart"} {
			if first, second := published(t, printed, kind), published(t, again, kind); first != second {
				t.Errorf("first %s, then %s", first, second)
			}
		}

		data := must(os.ReadFile(filepath.Join(other, "bin/release", archiveOf(platform))))(t)
		checkSum(t, sums, archiveOf(platform), data)
	})
	t.Run("kubectl-qos has its version", func(t *testing.T) {
		unpacked := t.TempDir()
		command(t, unpacked, nil, "tar", "-xzf", filepath.Join(dir, "bin/release", archiveOf("linux/"+runtime.GOARCH)))
		if version := command(t, unpacked, nil, "./kubectl-qos", "version"); !strings.Contains(version, "v0.2.0") {
			t.Errorf("kubectl qos version prints %q", version)
		}
	})
	t.Run("each archive has a checksum, and krew installs it", func(t *testing.T) {
		krew := buildKrew(t)
		for _, platform := range platforms() {
			checkSum(t, sums, archiveOf(platform), []byte(file(archiveOf(platform))))
			krew.install(t, filepath.Join(dir, "bin/release"), platform)
		}
	})
	t.Run("the SBOM lists each kubectl-qos and its modules, and has a checksum", func(t *testing.T) {
		const name = "kubectl-qos_sbom.spdx.json"
		checkSum(t, sums, name, []byte(file(name)))
		checkArchivesSBOM(t, file(name), filepath.Join(dir, "bin/release"))
	})
	t.Run("the notes name image and chart, and the changes by area", func(t *testing.T) {
		notes := file("notes.md")
		if changes := "## v0.2.0 (2023-11-14)\n\n### blockio\n\n- limit less\n\n### rdt\n\n- allocate more\n- allocate less\n"; !strings.HasPrefix(notes, changes) {
			t.Errorf("the notes begin with %q, want %q", notes[:min(len(notes), len(changes))], changes)
		}
		for _, kind := range []string{"image", "chart"} {
			if !strings.Contains(notes, published(t, printed, kind).String()) {
				t.Errorf("the notes do not name the %s:\n%s", kind, notes)
			}
		}
		if log := file("CHANGELOG.md"); !regexp.MustCompile(`(?s)## v0.2.0 .*## v0.1.0 \(2023-11-14\)\n\nThe first release.\n`).MatchString(log) {
			t.Errorf("the changelog is:\n%s", log)
		}
	})
}

func TestAReleaseIsRefusedBeforeItIsBuilt(t *testing.T) {
	dir := checkout(t)
	right := []string{"VERSION=v0.2.0", "REGISTRY=" + startRegistry(t), "KEY=none", "PLUGIN_PLATFORMS="}
	for name, test := range map[string]struct {
		variables []string
		want      string
	}{
		"a version without v":      {append(right, "VERSION=0.2.0"), "is not a version; write for example VERSION=v1.2.3"},
		"a version of two numbers": {append(right, "VERSION=v0.2"), "is not a version"},
		"no tag":                   {append(right, "VERSION=v0.3.0"), "there is no tag v0.3.0; make it with git tag"},
		"a tag of another commit":  {append(right, "VERSION=v0.1.0"), "run git switch --detach v0.1.0"},
		"no registry":              {append(right, "REGISTRY="), "REGISTRY is missing"},
		"a registry that is down":  {append(right, "REGISTRY=127.0.0.1:1/qos"), "check the name, that the registry runs"},
		"no key":                   {append(right, "KEY="), "KEY=none for a release without signatures"},
		"a key that is not there":  {append(right, "KEY=/none"), "make a key with cosign generate-key-pair"},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := makeRelease(t, dir, test.variables...)
			if err == nil || !strings.Contains(output, test.want) {
				t.Errorf("%v, output is %q, want %q", err, output, test.want)
			}
			if strings.Contains(output, "image:") {
				t.Errorf("the release was published: %q", output)
			}
		})
	}

	t.Run("files that are not in the tag", func(t *testing.T) {
		write(t, filepath.Join(dir, "cmd/more.go"), "package cmd\n")
		output, err := makeRelease(t, dir, right...)
		if err == nil || !strings.Contains(output, "differs from tag v0.2.0; commit or remove: ?? cmd/more.go") {
			t.Errorf("%v, output is %q", err, output)
		}
	})
}

func TestTheWorkflowOfTheForgeMakesTheRelease(t *testing.T) {
	data := must(os.ReadFile("../../../.github/workflows/release.yml"))(t)
	type steps []struct{ Uses, Run string }
	var workflow struct {
		Jobs struct {
			Arm64   struct{ Steps steps }
			Release struct {
				Needs string
				Env   map[string]string
				Steps steps
			}
		}
	}

	if err := yaml.Unmarshal(data, &workflow); err != nil {
		t.Fatal(err)
	}

	job := workflow.Jobs.Release
	for _, variable := range []string{"VERSION", "REGISTRY", "BUILDER", "COSIGN_PASSWORD"} {
		if job.Env[variable] == "" {
			t.Errorf("make release does not get %s", variable)
		}
	}

	var commands string
	for _, step := range job.Steps {
		commands += step.Run
		if step.Uses != "" {
			t.Errorf("the workflow runs %s, which others can change", step.Uses)
		}
	}

	// make e2e-vm also succeeds if it skips the machine, so a grep for the result must follow.
	tests := slices.ContainsFunc(workflow.Jobs.Arm64.Steps, func(step struct{ Uses, Run string }) bool {
		return strings.Contains(step.Run, "make e2e-vm E2E_RUN=TestVM/arm64-mpam ") && strings.Contains(step.Run, "\ngrep ")
	})
	if job.Needs != "arm64" || !tests {
		t.Errorf("the release needs the job %q; want one that boots arm64-mpam, and fails if it is skipped", job.Needs)
	}
	if !strings.Contains(commands, "make release KEY=") {
		t.Errorf("the workflow runs %s, want make release with KEY", commands)
	}
}
