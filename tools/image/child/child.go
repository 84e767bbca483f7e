// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package child starts processes that end with the test, together with all processes that they start. It is a copy of test/child of
// the main module, which this module does not import.
package child

import (
	"io"
	"os/exec"
	"syscall"
	"testing"
)

// Command returns a command that is not started yet. When the test ends, the command ends with all processes that it has started,
// also if the test program panics, is killed, or passes the timeout of "go test". The processes may end some milliseconds after the test,
// so a test that then removes their cgroup must wait for the command.
func Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: newGroup(t)}
	return cmd
}

// newGroup returns the ID of a new process group. Its leader waits for the end of the pipe to the test, which the kernel closes if the
// test program ends, and then kills the group.
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
