// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// rig has the files that all machines share.
type rig struct {
	source    string              // root of the checkout
	kernels   map[string]string   // images to boot, by the field linux of the machine
	test2json string              // program that turns the output of tests into events
	share     string              // folder that the VM sees as /share
	programs  string              // folder with the programs that every VM has in /opt
	runtimes  map[string][]string // programs of each container runtime; none when it could not be built
	crun      string              // folder with crun and its libraries, with the same paths as below /
}

// prepare builds all programs of the VM. If it runs as root, it also installs missing packages on this machine.
func prepare(t *testing.T) *rig {
	source, err := filepath.Abs("../..")
	must(t, err)
	r := &rig{source: source, share: t.TempDir(), programs: t.TempDir()}
	paths := r.setUp(t)
	r.kernels = map[string]string{"": paths["KERNEL"], "7.3": paths["KERNEL_7_3"], "arm64": paths["KERNEL_ARM64"]}
	r.crun = paths["CRUN"]
	r.runtimes = map[string][]string{}
	for runtime, folder := range map[string]string{
		"containerd": paths["RUNTIMES"], "containerd-2.3": paths["CONTAINERD_2_3"], "containerd-2.2": paths["CONTAINERD_2_2"],
	} {
		r.runtimes[runtime] = append(in(folder, "containerd", "containerd-shim-runc-v2", "ctr"), in(paths["RUNTIMES"], "runc")...)
	}

	if paths["CRIO"] != "" {
		r.runtimes["cri-o"] = append(in(paths["CRIO"], "crio", "pinns", "copyimg"), in(paths["RUNTIMES"], "runc")...)
	}

	r.build(t, "build", "-o", filepath.Join(r.programs, "qos-nri-plugin"), "./cmd/qos-nri-plugin")
	r.build(t, "test", "-c", "-tags", "e2e_vm,grpcnotrace", "-o", filepath.Join(r.programs, "invm.test"), "./test/e2e/invm")
	r.build(t, "test", "-c", "-o", filepath.Join(r.programs, "rdt.test"), "./pkg/rdt")
	r.build(t, "build", "-o", filepath.Join(r.programs, "demo"), "./test/demo")
	r.build(t, "build", "-o", filepath.Join(r.programs, "lab"), "./test/lab/real")
	workload := filepath.Join(r.programs, "workload")
	r.build(t, "build", "-o", workload, "./test/e2e/workload")
	r.test2json = filepath.Join(t.TempDir(), "test2json")
	r.build(t, "build", "-o", r.test2json, "cmd/test2json")

	r.build(t, "-C", "tools/image", "run", ".", "-output", filepath.Join(r.share, "image.tar"),
		"-name", "localhost/workload:1", "-platform", "linux/"+runtime.GOARCH, workload)
	page, err := os.ReadFile(filepath.Join(source, "docs/stories.md"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(r.share, "stories.md"), page, 0o644))
	must(t, os.WriteFile(filepath.Join(r.share, "run"), []byte(runInside()), 0o755))
	return r
}

// setUp runs setup.sh and returns the paths that it prints. With the flag -short, only what the machines of a short run need is built.
func (r *rig) setUp(t *testing.T) map[string]string {
	setup := child.Command(t, filepath.Join(r.source, "test/e2e/vm/setup.sh"))
	if testing.Short() {
		setup.Args = append(setup.Args, "short")
	}
	setup.Stderr = os.Stderr
	output, err := setup.Output()
	if err != nil {
		t.Fatalf("set up the VM: %v", err)
	}
	paths := map[string]string{}
	for _, line := range strings.Split(string(output), "\n") {
		if name, value, ok := strings.Cut(line, "="); ok {
			paths[name] = value
		}
	}
	return paths
}

// build runs the go command for static binaries. The flags are those of the image's build. Therefore Go's cache already
// has the packages that the image's build has compiled.
func (r *rig) build(t *testing.T, args ...string) {
	t.Helper()
	r.buildFor(t, runtime.GOARCH, args...)
}

// buildFor does the same for another CPU.
func (r *rig) buildFor(t *testing.T, arch string, args ...string) {
	t.Helper()
	build := child.Command(t, "go", args...)
	build.Dir = r.source
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath -tags=grpcnotrace"))
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// buildForArm builds the files of the VM for arm64 into a folder: those of the image, and the tests. As this VM has neither disks nor
// shared folders, they are in its memory.
func (r *rig) buildForArm(t *testing.T, root string) {
	r.unpackImage(t, "arm64", root)
	opt := filepath.Join(root, "opt")
	r.buildFor(t, "arm64", "build", "-o", filepath.Join(root, "init"), "./test/e2e/firstprocess")
	r.buildFor(t, "arm64", "build", "-o", filepath.Join(opt, "demo"), "./test/demo")
	r.buildFor(t, "arm64", "test", "-c", "-tags", "e2e_vm,grpcnotrace", "-o", filepath.Join(opt, "invm.test"), "./test/e2e/invm")
	r.buildFor(t, "arm64", "test", "-c", "-o", filepath.Join(opt, "rdt.test"), "./pkg/rdt")
	must(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
	for _, name := range []string{"sh", "sleep"} {
		must(t, os.Symlink("/init", filepath.Join(root, "bin", name)))
	}
}

// unpackImage builds the image for a CPU as a release does, and unpacks its layers into a folder, as a container runtime does.
func (r *rig) unpackImage(t *testing.T, arch, root string) {
	t.Helper()
	dir := t.TempDir()
	r.command(t, "make", "-C", r.source, "image", "PLATFORM=linux/"+arch, "IMAGE_FILE="+filepath.Join(dir, "image.tar"))
	r.command(t, "tar", "-C", dir, "-xf", filepath.Join(dir, "image.tar"))

	var images []struct {
		Config string
		Layers []string
	}
	var config struct{ Architecture, OS string }
	readJSON(t, filepath.Join(dir, "manifest.json"), &images)
	readJSON(t, filepath.Join(dir, images[0].Config), &config)
	if got := config.OS + "/" + config.Architecture; got != "linux/"+arch {
		t.Fatalf("the image is for %s, want linux/%s", got, arch)
	}
	must(t, os.MkdirAll(root, 0o755))
	for _, layer := range images[0].Layers {
		r.command(t, "tar", "-C", root, "-xf", filepath.Join(dir, layer))
	}
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	must(t, json.Unmarshal(data, into))
}

// command runs a program of this machine.
func (r *rig) command(t *testing.T, name string, args ...string) {
	t.Helper()
	if output, err := child.Command(t, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, output)
	}
}

// runInside returns the script that the VM runs.
func runInside() string {
	script := `#!/bin/sh
export PATH=/opt:$PATH
cd /tmp
exec invm.test -test.v=test2json -test.timeout=%s -test.run="^$QOS_TEST\$/(%s$QOS_RUN)" ${QOS_SKIP:+-test.skip="^$QOS_TEST\$/($QOS_SKIP)"}
`
	return fmt.Sprintf(script, insideTimeout, os.Getenv("QOS_E2E_RUN"))
}

// in returns the paths of files in a folder.
func in(folder string, names ...string) []string {
	paths := make([]string, 0, len(names))
	for _, name := range names {
		paths = append(paths, filepath.Join(folder, name))
	}
	return paths
}

// linkPrograms makes a folder with links to the programs of a VM with a container runtime.
func (r *rig) linkPrograms(t *testing.T, folder, runtime string) {
	t.Helper()
	must(t, os.Mkdir(folder, 0o755))
	common, err := filepath.Glob(filepath.Join(r.programs, "*"))
	must(t, err)
	for _, program := range append(common, r.runtimes[runtime]...) {
		must(t, os.Symlink(program, filepath.Join(folder, filepath.Base(program))))
	}
}
