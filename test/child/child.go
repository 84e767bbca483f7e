// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package child starts processes that end with the test, together with all processes that they start.
package child

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Command returns a command that is not started yet. When the test ends, the command ends with all processes that it has started,
// even if the test program panics, is killed, or passes the timeout of "go test". The processes may end some milliseconds after the test,
// so a test that then removes their cgroup must wait for the command.
func Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return CommandContext(t.Context(), t, name, args...)
}

// CommandContext is like Command, but the command also ends when ctx ends.
func CommandContext(ctx context.Context, t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: newGroup(t)}
	return cmd
}

// Build builds a program of the checkout `root`, and returns its file. It uses the flags of "make build", so that Go
// finds the packages in its cache.
func Build(t testing.TB, root, name string) string {
	t.Helper()
	output := filepath.Join(t.TempDir(), name)
	build := Command(t, "go", "-C", root, "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", output, "./cmd/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", name, err, text)
	}
	return output
}

// newGroup returns the ID of a new process group. The group's leader reads from a pipe to the test. When the test
// program ends, the kernel closes the pipe, and the leader kills the group.
func newGroup(t testing.TB) int {
	t.Helper()
	leader := exec.Command("sh", "-c", "read -r end; kill -s KILL 0")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := leader.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { end(pipe, leader) })
	return leader.Process.Pid
}

// end kills a group, and waits until its leader has ended.
func end(pipe io.Closer, leader *exec.Cmd) {
	_ = pipe.Close()
	_ = leader.Wait() // the error is that the leader was killed
}
