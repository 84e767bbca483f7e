// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/qos-nri/qos-nri-plugin/tools/image/child"
)

// programs builds a static program for a platform under several names.
func programs(t *testing.T, arch string, names ...string) []string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	var paths []string
	for _, name := range names {
		output := filepath.Join(dir, name)
		build := child.Command(t, "go", "build", "-trimpath", "-o", output, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		paths = append(paths, output)
	}

	return paths
}

func document(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "LICENSE")
	if err := os.WriteFile(file, []byte("all of it\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// must returns the result of a call, and fails the test if the call failed.
func must[T any](result T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// makeImage runs the command, and returns the archive and what it printed.
func makeImage(t *testing.T, args ...string) (archive, printed string, err error) {
	t.Helper()
	archive = filepath.Join(t.TempDir(), "image.tar")
	var out bytes.Buffer
	err = run(append([]string{"-output", archive}, args...), &out, io.Discard)
	return archive, out.String(), err
}

// unpack extracts an archive into a directory.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := child.Command(t, "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func imageOf(t *testing.T, archive string) (v1.Image, v1.Descriptor) {
	t.Helper()
	index := must(layout.ImageIndexFromPath(unpack(t, archive)))(t)
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the index has %+v (%v), want one image", manifest, err)
	}

	return must(index.Image(manifest.Manifests[0].Digest))(t), manifest.Manifests[0]
}

func TestTheImageRunsTheProgramsAndNothingElse(t *testing.T) {
	files := programs(t, "amd64", "shim", "plugin")
	archive, printed, err := makeImage(t, append([]string{"-name", "registry.example/qos:v1", "-platform", "linux/amd64", "-epoch", "1700000000",
		"-version", "v1", "-revision", "abc", "-title", "t", "-source", "s", "-licenses", "Apache-2.0", "-entrypoint", "plugin",
		"-documents", document(t)}, files...)...)
	if err != nil {
		t.Fatal(err)
	}

	image, descriptor := imageOf(t, archive)
	if err := validate.Image(image); err != nil {
		t.Errorf("the image is not valid: %v", err)
	}

	config := must(image.ConfigFile())(t)

	t.Run("it starts the entrypoint as root with a PATH", func(t *testing.T) {
		if !slices.Equal(config.Config.Entrypoint, []string{"/plugin"}) || !slices.Equal(config.Config.Env, []string{"PATH=/"}) || config.Config.User != "0:0" {
			t.Errorf("the image configuration is %+v", config.Config)
		}
	})
	t.Run("its labels and platform describe it", func(t *testing.T) {
		for label, want := range map[string]string{"title": "t", "source": "s", "version": "v1", "revision": "abc", "licenses": "Apache-2.0"} {
			if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("label %s is %q, want %q", label, got, want)
			}
		}
		if config.OS != "linux" || config.Architecture != "amd64" || descriptor.Platform.String() != "linux/amd64" || config.Created.Unix() != 1700000000 {
			t.Errorf("the image configuration is %+v", config)
		}
	})
	t.Run("it has programs and documents, owned by root, of the given time", func(t *testing.T) {
		if files := listing(t, image, 1700000000); !slices.Equal(files, []string{
			"-rw-r--r-- usr/share/doc/qos-nri-plugin/LICENSE", "-rwxr-xr-x plugin", "-rwxr-xr-x shim",
			"drwxr-xr-x usr", "drwxr-xr-x usr/share", "drwxr-xr-x usr/share/doc", "drwxr-xr-x usr/share/doc/qos-nri-plugin",
		}) {
			t.Errorf("it has %q", files)
		}
	})
	t.Run("it prints name and digest", func(t *testing.T) {
		if !strings.Contains(printed, "registry.example/qos:v1") || !strings.Contains(printed, descriptor.Digest.String()) {
			t.Errorf("it printed %q", printed)
		}
	})
	t.Run("containerd finds the full name, other tools the tag", func(t *testing.T) {
		a := descriptor.Annotations
		if a["io.containerd.image.name"] != "registry.example/qos:v1" || a["org.opencontainers.image.ref.name"] != "v1" {
			t.Errorf("annotations are %v", a)
		}
	})
}

// listing returns the mode and the name of every file, sorted. It fails the test if a file does not belong to root, or
// does not have the time given by the parameter `at`.
func listing(t *testing.T, image v1.Image, at int64) []string {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	var files []string
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(files)
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(time.Unix(at, 0)) {
			t.Errorf("%s belongs to %d:%d and is of %s", header.Name, header.Uid, header.Gid, header.ModTime)
		}
		files = append(files, header.FileInfo().Mode().String()+" "+header.Name)
	}
}

// TestDockerFindsTheSameImage: Docker reads manifest.json, and other tools read index.json.
func TestDockerFindsTheSameImage(t *testing.T) {
	archive, _, err := makeImage(t, append([]string{"-name", "docker.io/example/qos:v1", "-platform", "linux/amd64"}, programs(t, "amd64", "plugin")...)...)
	if err != nil {
		t.Fatal(err)
	}

	docker := must(tarball.ImageFromPath(archive, nil))(t)
	image, _ := imageOf(t, archive)
	got, gotErr := docker.ConfigName()
	want, wantErr := image.ConfigName()
	if err := errors.Join(gotErr, wantErr); err != nil || got != want {
		t.Errorf("by manifest.json the image is %s (%v), by index.json %s", got, err, want)
	}

	data := must(os.ReadFile(filepath.Join(unpack(t, archive), "manifest.json")))(t)

	var entries []struct{ RepoTags []string }
	if err := json.Unmarshal(data, &entries); err != nil || len(entries) != 1 || !slices.Equal(entries[0].RepoTags, []string{"docker.io/example/qos:v1"}) {
		t.Errorf("manifest.json is %s (%v)", data, err)
	}
}

func TestTheSameInputResultsInTheSameArchive(t *testing.T) {
	licence := document(t)
	files := programs(t, "amd64", "plugin", "shim")
	read := func(epoch string) []byte {
		archive, _, err := makeImage(t, append([]string{"-name", "q.example/qos:v1", "-platform", "linux/amd64", "-epoch", epoch, "-documents", licence}, files...)...)
		if err != nil {
			t.Fatal(err)
		}
		return must(os.ReadFile(archive))(t)
	}

	first := read("1700000000")
	for _, file := range append(files, licence) { // another build or checkout has other times and modes
		if err := errors.Join(os.Chtimes(file, time.Unix(1, 0), time.Unix(2, 0)), os.Chmod(file, 0o500)); err != nil {
			t.Fatal(err)
		}
	}

	if !bytes.Equal(first, read("1700000000")) {
		t.Error("two builds of the same input differ")
	}

	if bytes.Equal(first, read("1700000001")) {
		t.Error("builds with different times do not differ")
	}
}

func TestWrongInputIsRefusedWithARemedy(t *testing.T) {
	plugin := programs(t, "amd64", "plugin")
	foreign := programs(t, "arm64", "plugin")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	right := []string{"-name", "q.example/qos:v1", "-platform", "linux/amd64"}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no program":                         {right, "no program is named"},
		"a program that is not there":        {append(right, "/none/plugin"), "/none/plugin"},
		"a program for another platform":     {append(right, foreign...), "build it with GOARCH=amd64"},
		"something that is no program":       {append(right, script), "is not a program for Linux"},
		"two programs of one name":           {append(right, plugin[0], plugin[0]), "two programs are named plugin"},
		"an entrypoint that is not there":    {append(right, "-entrypoint", "shim", plugin[0]), "-entrypoint shim is not among"},
		"a document that is not there":       {append(right, "-documents", "/none/LICENSE", plugin[0]), "/none/LICENSE"},
		"a name without a tag":               {[]string{"-name", "q.example/qos", "-platform", "linux/amd64", plugin[0]}, "registry/name:tag"},
		"no name":                            {[]string{"-platform", "linux/amd64", plugin[0]}, "registry/name:tag"},
		"a platform that is not Linux":       {[]string{"-name", "q.example/qos:v1", "-platform", "windows/amd64", plugin[0]}, "linux/"},
		"a platform without an architecture": {[]string{"-name", "q.example/qos:v1", "-platform", "linux", plugin[0]}, "linux/"},
		"a flag that does not exist":         {append(right, "-tag", "v1", plugin[0]), "-help"},
	} {
		t.Run(name, func(t *testing.T) {
			archive, _, err := makeImage(t, test.args...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
			if _, err := os.Stat(archive); err == nil {
				t.Error("the archive exists, although the command failed")
			}
		})
	}
}

func TestAProgramThatNeedsADynamicLinkerIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(file, dynamicProgram(t), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := makeImage(t, "-name", "q.example/qos:v1", "-platform", "linux/amd64", file)
	if err == nil || !strings.Contains(err.Error(), "build it with CGO_ENABLED=0") {
		t.Errorf("error is %v", err)
	}
}

// dynamicProgram returns the header of an ELF file for amd64 with a dynamic linker.
func dynamicProgram(t *testing.T) []byte {
	t.Helper()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: 1,
	}
	var file bytes.Buffer
	for _, part := range []any{header, elf.Prog64{Type: uint32(elf.PT_INTERP)}} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}
