// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a program of the node that can be ended and started again. Its output goes to a log.
type process struct {
	name    string
	args    []string
	env     []string // further variables
	log     string
	command *exec.Cmd
	ended   chan struct{}
}

// process returns a process that is not started yet. It runs a program of the node, and writes to the node's logs.
func (n *node) process(name string, args ...string) *process {
	return &process{name: name, args: args, log: filepath.Join(n.logs, name+".log")}
}

// startProcess starts a program of the node, which ends with the test.
func (n *node) startProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := n.process(name, args...)
	p.mustStart(t)
	t.Cleanup(func() { p.mustEnd(t, syscall.SIGTERM) })
	return p
}

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.command = exec.Command(p.args[0], p.args[1:]...)
	p.command.Env = append(os.Environ(), p.env...)
	p.command.Stdout, p.command.Stderr = log, log
	// The process gets a process group of its own, so that an interrupt from the terminal ends only the tests.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}

	p.ended = make(chan struct{})
	go func(command *exec.Cmd, ended chan struct{}) {
		_ = command.Wait()
		close(ended)
	}(p.command, p.ended)

	return nil
}

func (p *process) running() bool {
	if p.command == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end sends a signal and waits for the end of the process.
func (p *process) end(signal syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := p.command.Process.Signal(signal); err != nil {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s does not end after %v", p.name, signal)
	}
}

func (p *process) mustStart(t *testing.T) {
	t.Helper()
	must(t, p.start())
}

func (p *process) mustEnd(t *testing.T, signal syscall.Signal) {
	t.Helper()
	must(t, p.end(signal))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantRefusal returns a function for the results of a command. It checks that the command has failed with a text.
func wantRefusal(t *testing.T, what, text string) func(output string, err error) {
	t.Helper()
	return func(output string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(output, text) {
			t.Errorf("%s: the error is %v, want %q in\n%s", what, err, text, output)
		}
	}
}

// patience is the longest time that a test waits for a condition. On an idle machine, a condition becomes true within
// seconds. within is the same limit as a flag of kubectl.
const (
	patience = 10 * time.Minute
	within   = "--timeout=10m"
)

// until calls the function `look` repeatedly until its result ok is true. The result seen describes the present state,
// for the error message if the condition never becomes true. The interval between the calls grows, because most of
// these functions run kubectl, which takes 0.1 s of CPU time.
func until(t *testing.T, what string, look func() (ok bool, seen string)) {
	t.Helper()
	start := time.Now()
	for {
		ok, seen := look()
		if ok {
			return
		}
		if time.Since(start) > patience {
			t.Fatalf("timed out waiting for: %s; the last state: %s", what, seen)
		}
		<-time.After(min(max(time.Since(start)/4, 100*time.Millisecond), 3*time.Second))
	}
}

// untilSeen calls a function repeatedly until it returns an output that contains all texts.
func untilSeen(t *testing.T, what string, look func() string, texts ...string) {
	t.Helper()
	until(t, what, func() (bool, string) {
		seen := look()
		lacks := func(text string) bool { return !strings.Contains(seen, text) }
		return !slices.ContainsFunc(texts, lacks), seen
	})
}

// untilDone calls a function repeatedly until it returns no error.
func untilDone(t *testing.T, what string, do func() (output string, err error)) {
	t.Helper()
	until(t, what, func() (bool, string) {
		output, err := do()
		return err == nil, output
	})
}

// untilRefused calls a function repeatedly until it returns an error, with an output that contains the text.
func untilRefused(t *testing.T, what, text string, do func() (output string, err error)) {
	t.Helper()
	until(t, what, func() (bool, string) {
		output, err := do()
		return err != nil && strings.Contains(output, text), output
	})
}
