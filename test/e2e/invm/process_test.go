// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// patience is the longest time that tests wait for a condition, on an emulated CPU of a busy host.
const patience = 5 * time.Minute

// eventually waits until `check` returns nil. If it never does, the test fails with its last error. A check takes much of
// the time of an emulated CPU, so the interval between the checks grows.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	start := time.Now()
	for {
		err := check()
		if err == nil {
			return
		}
		waited := time.Since(start)
		if waited > patience {
			t.Fatalf("%s: not after %s: %v", what, patience, err)
		}
		time.Sleep(min(max(waited/4, 50*time.Millisecond), time.Second)) //nolint:forbidigo // other processes can only be polled
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustRead(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func mustWrite(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// process is a program that runs beside the tests, with a log file.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the program has ended
}

// start runs a program whose output is appended to a log in the folder that the host keeps.
func start(t testing.TB, name string, args ...string) *process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(logDirectory(), name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	defer log.Close()
	p := &process{cmd: exec.Command(name, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.exited)
	}()
	return p
}

// end sends a signal and waits until the process is gone.
func (p *process) end(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("send %s to %s: %v", signal, p.cmd.Path, err)
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatalf("%s still runs %s after %s", p.cmd.Path, patience, signal)
	}
}

// alive returns an error when the process has ended.
func (p *process) alive() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s has ended: %s", p.cmd.Path, p.cmd.ProcessState)
	default:
		return nil
	}
}

// output runs a program to its end and returns its standard output.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %q: %w: %s", name, args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

func logDirectory() string {
	if dir := os.Getenv("QOS_LOGS"); dir != "" {
		return dir
	}
	return os.TempDir()
}
