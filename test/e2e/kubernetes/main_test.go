// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// rigVariable is the name of an environment variable. Its value is the directory in which the test program in the new
// namespaces finds programs and images, and writes logs.
const rigVariable = "QOS_E2E_KUBERNETES_RIG"

// TestMain runs the tests in new namespaces. The test program is the first process of its PID namespace, so all
// processes that it started end with it.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir := os.Getenv(rigVariable)
	switch {
	case os.Getuid() != 0 || len(wanted()) == 0:
		return m.Run() // without root, each test skips itself with a message
	case dir == "":
		return outside()
	}
	node := newNode(dir)
	theNode = node
	defer node.stop()
	return m.Run()
}

// wanted returns the tests that the flags select. If there are none, nothing has to be built.
func wanted() []string {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		return nil
	}

	first, _, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	names, err := exec.Command("/proc/self/exe", "-test.list", first).Output()
	if err != nil {
		panic(err)
	}

	skip := flag.Lookup("test.skip").Value.String()
	return slices.DeleteFunc(strings.Fields(string(names)), func(name string) bool {
		skipped, err := regexp.MatchString(skip, name)
		return skip != "" && skipped && err == nil || testing.Short() && slices.Contains(nightly, name)
	})
}

// nightly are the tests that the flag -short leaves out, because they take minutes and find few faults that no other test finds.
var nightly = []string{"TestNodes", "TestVirtualNodeAMD", "TestResizeOfManyStatefulSets", "TestManyClaimsOfOneClass", "TestDRAFigures", "TestDRALoad",
	"TestLargeCluster"}

// skipNightly skips a test in a short run.
func skipNightly(t *testing.T) {
	t.Helper()
	if testing.Short() && slices.Contains(nightly, t.Name()) {
		t.Skip("this test runs without -short, each night")
	}
}

// runNightly runs a case that a short run leaves out, for the same reasons as the tests of `nightly`.
func runNightly(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if testing.Short() {
			t.Skip("this case runs without -short, each night")
		}
		test(t)
	})
}

// outside runs before the new namespaces exist. It builds all programs here, because the new namespaces have no network. It then runs
// this program again for each cluster, in new namespaces.
func outside() int {
	dir, err := os.MkdirTemp("", "qos-e2e-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir); err != nil {
		return failed(err)
	}
	// An interrupt ends the context, so that the deferred calls clean up the machine.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return sideBySide(ctx, dir, divide(wanted(), seconds, clusters))
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// inside runs this program again in new namespaces, for one cluster. The parameter `skipped` lists the tests that the
// program does not run. The parameter `built` is the directory with the programs and images.
func inside(ctx context.Context, built string, skipped []string, output io.Writer) int {
	dir, err := os.MkdirTemp("", "qos-e2e-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	// These are hard links, not symbolic links, because a VM reads the images and sees only this directory.
	if output, err := exec.Command("cp", "-al", built+"/.", dir).CombinedOutput(); err != nil {
		return failed(fmt.Errorf("link the built programs: %w: %s", err, output))
	}

	groups := newCgroups(filepath.Base(dir))
	if err := groups.make(); err != nil {
		return failed(err)
	}
	defer groups.remove()

	// Because of Pdeathsig, the child ends with the thread that started it, so this goroutine stays on its thread.
	runtime.LockOSThread()
	here, err := os.Getwd()
	if err != nil {
		return failed(err)
	}

	args := append([]string{dir}, os.Args...)
	if len(skipped) > 0 {
		skip := "^(" + strings.Join(skipped, "|") + ")$"
		if users := flag.Lookup("test.skip").Value.String(); users != "" {
			skip += "|" + users
		}
		args = append(args, "-test.skip="+skip)
	}

	command := exec.CommandContext(ctx, filepath.Join(here, "inside.sh"), args...)
	command.Env = append(os.Environ(), rigVariable+"="+dir)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}

	err = command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return failed(err)
	}

	return command.ProcessState.ExitCode()
}

// prepare builds all programs into dir/bin, and the container images into `dir`.
func prepare(dir string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}

	scripts := []string{"./setup.sh"}
	if slices.ContainsFunc(wanted(), func(name string) bool { return name == "TestNodes" || strings.HasPrefix(name, virtualNodes) }) {
		scripts = append(scripts, "../vm/setup.sh")
	}

	for _, script := range scripts {
		if err := setUp(script, bin); err != nil {
			return err
		}
	}

	if err := buildCPUDriver(bin); err != nil {
		return err
	}

	version := "-X main.version=v0.0.0-e2e"
	for _, program := range []string{
		"./cmd/qos-nri-plugin", "./cmd/qos-kubelet-shim", "./cmd/qos-dra-driver", "./cmd/qos-storage", "./cmd/kubectl-qos", "./test/e2e/workload", "./test/e2e/agent", "./test/e2e/csidriver",
	} {
		// The flags are those of the image's build, so that Go compiles each package once.
		build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", version, "-o", bin+"/", program)
		build.Dir = "../../.."
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", program, err, output)
		}
	}

	if err := makeImage(dir); err != nil {
		return err
	}

	if err := buildPublisher(dir); err != nil {
		return err
	}

	image := exec.Command("go", "-C", "../../../tools/image", "run", ".", "-output", filepath.Join(dir, "workload.tar"),
		"-name", workloadImage, "-platform", "linux/"+runtime.GOARCH, filepath.Join(bin, "workload"))
	if output, err := image.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", workloadImage, err, output)
	}

	return nil
}

// makeImage builds the image as users do.
func makeImage(dir string) error {
	command := exec.Command("make", "image")
	command.Dir = "../../.."
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("make image: %w\n%s", err, output)
	}
	archive, err := os.ReadFile("../../../bin/image.tar")
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "image.tar"), archive, 0o644))
}

// setUp runs a script that prints paths as NAME=VALUE. It links these paths, and the files in them, into a directory.
func setUp(script, bin string) error {
	setup := exec.Command(script)
	if testing.Short() {
		setup.Args = append(setup.Args, "short")
	}
	setup.Stderr = os.Stderr
	paths, err := setup.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", script, err)
	}

	for line := range strings.FieldsSeq(string(paths)) {
		name, from, _ := strings.Cut(line, "=")
		links := map[string]string{name: from}
		if entries, err := os.ReadDir(from); err == nil {
			for _, entry := range entries {
				links[entry.Name()] = filepath.Join(from, entry.Name())
			}
		}
		for link, file := range links {
			if err := os.Symlink(file, filepath.Join(bin, link)); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}

	return nil
}
