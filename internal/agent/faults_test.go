// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// stopTime is how long the process may take to end after SIGTERM.
const stopTime = 5 * time.Second

// until requests the page at a path again and again, until the page contains the line want.
func (r *rig) until(t *testing.T, path, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		_, body := r.get(t, path)
		if strings.Contains("\n"+body, "\n"+want+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not have %q:\n%s", path, want, body)
		}
	}
}

func (r *rig) hangUp(t *testing.T) {
	t.Helper()
	must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
}

func TestWrongClassFilesAreReportedAndTheFormerOnesStayLive(t *testing.T) {
	for name, wrong := range map[string]string{
		"truncated":        files[:len(files)-20],
		"empty":            "",
		"binary":           "\x7fELF\x00\x01",
		"a megabyte":       files + "# " + strings.Repeat("x", 1<<20),
		"a wrong value":    strings.ReplaceAll(files, "capacity: 2", "capacity: -2"),
		"an unknown field": strings.ReplaceAll(files, "classes:", "clases:"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, files)
			r.start(t)
			path := filepath.Join(r.options.Config, "classes.yaml")
			write(t, path, wrong)
			r.hangUp(t)
			r.until(t, "/metrics", "qos_config_last_reload_successful 0")
			if err := r.run(t, "test.example/cache=gold"); err != nil {
				t.Errorf("a class of the former files is not assigned: %v", err)
			}

			if status, body := r.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, path) {
				t.Errorf("/readyz answers %d: %s", status, body)
			}

			write(t, path, files)
			r.hangUp(t)
			r.until(t, "/metrics", "qos_config_last_reload_successful 1")
			if status, body := r.get(t, "/readyz"); status != http.StatusOK {
				t.Errorf("/readyz answers %d: %s", status, body)
			}
		})
	}
}

// TestAnUpdatedConfigMapIsApplied updates the class files as the kubelet updates a mounted ConfigMap. It sends no
// SIGHUP.
func TestAnUpdatedConfigMapIsApplied(t *testing.T) {
	r := newRig(t, "")
	dir := r.options.Config
	must(t, os.Remove(filepath.Join(dir, "classes.yaml")))
	for version, text := range map[string]string{"1": files, "2": strings.ReplaceAll(files, "gold", "silver")} {
		write(t, filepath.Join(dir, "..version_"+version, "classes.yaml"), text)
	}

	link(t, "..version_1", filepath.Join(dir, "..data"))
	link(t, "..data/classes.yaml", filepath.Join(dir, "classes.yaml"))
	r.start(t)
	must(t, r.run(t, "test.example/cache=gold"))

	link(t, "..version_2", filepath.Join(dir, "..data_tmp"))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))

	r.until(t, "/metrics", `qos_class_capacity{class="silver",resource="test.example/cache"} 2`)
	if err := r.run(t, "test.example/cache=silver"); err != nil {
		t.Error(err)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	must(t, os.Symlink(target, name))
}

// TestARemovedGroupIsRepairedAtOnce sets the repair interval to an hour, so that no periodic repair finds the drift.
func TestARemovedGroupIsRepairedAtOnce(t *testing.T) {
	r := newRig(t, files)
	group := filepath.Join(r.options.HostRoot, "sys/fs/resctrl/qos-gold")
	write(t, filepath.Join(group, "schemata"), "L3:0=f")
	r.options.RepairInterval = time.Hour
	r.begin(t)
	r.synchronized(t, 1)
	r.backend.Damage(classes.Drift{Found: []string{"the group was removed"}})
	must(t, os.RemoveAll(group))
	r.until(t, "/metrics", `qos_drift_corrections_total{resource="test.example/cache",what="configuration"} 1`)
}

// hang makes an operation of the backend hang until the test ends. The returned channel is closed when the first call
// hangs.
func (r *rig) hang(t *testing.T, operation string) (reached <-chan struct{}) {
	t.Helper()
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	return r.backend.Stick(operation, released)
}

// terminate cancels the agent's context, as SIGTERM does. It fails the test if the agent does not end in time.
func (r *rig) terminate(t *testing.T) error {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(stopTime + time.Second):
		t.Fatalf("the agent has not ended within %s", stopTime)
		return nil
	}
}

func TestSIGTERMInTheMiddleOfAHookEndsTheAgentInTimeAndTheHookFails(t *testing.T) {
	r := newRig(t, files)
	reached := r.hang(t, "enforce")
	r.begin(t)
	r.synchronized(t, 1)
	started := make(chan error, 1)
	go func() { started <- r.run(t, "test.example/cache=gold") }()
	<-reached
	if err := r.terminate(t); err != nil {
		t.Errorf("the agent ended with %v", err)
	}

	if err := <-started; err == nil {
		t.Error("the container was started, though it was not verified in its class")
	}

	// The container whose start was interrupted has no slot, so the next agent can assign both slots.
	r.backend = nodetest.NewBackend()
	r.begin(t)
	r.synchronized(t, 2)

	for range 2 {
		if err := r.run(t, "test.example/cache=gold"); err != nil {
			t.Error(err)
		}
	}

	if err := r.terminate(t); err != nil {
		t.Errorf("the next agent ended with %v", err)
	}
}

// TestSIGTERMWhileClassFilesHangInTheKernelEndsTheAgentInTime lets a call into the kernel hang, so the agent may end with the error that not
// all of its goroutines have ended.
func TestSIGTERMWhileClassFilesHangInTheKernelEndsTheAgentInTime(t *testing.T) {
	t.Run("at a reload", func(t *testing.T) {
		r := newRig(t, files)
		r.begin(t)
		r.synchronized(t, 1)
		reached := r.hang(t, "apply")
		write(t, filepath.Join(r.options.Config, "classes.yaml"), strings.ReplaceAll(files, "gold", "silver"))
		r.hangUp(t)
		<-reached
		if err := r.terminate(t); err != nil && !strings.Contains(err.Error(), "not all goroutines of qos-nri-plugin ended") {
			t.Errorf("the agent ended with %v", err)
		}
	})
	t.Run("at the start", func(t *testing.T) {
		r := newRig(t, files)
		reached := r.hang(t, "apply")
		r.begin(t)
		<-reached
		if err := r.terminate(t); err != nil && !strings.Contains(err.Error(), "not all goroutines of qos-nri-plugin ended") {
			t.Errorf("the agent ended with %v", err)
		}
	})
}

// TestAHungKernelIsReportedAndClassFilesAreStillApplied lets the read of one container's class hang.
func TestAHungKernelIsReportedAndClassFilesAreStillApplied(t *testing.T) {
	r := newRig(t, files)
	r.options.RepairInterval = 10 * time.Millisecond
	r.begin(t)
	r.synchronized(t, 1)
	must(t, r.run(t, "test.example/cache=gold"))

	<-r.hang(t, "observe")
	r.until(t, "/metrics", "qos_kernel_calls_blocked 1")
	if status, body := r.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "the kernel does not answer") {
		t.Errorf("/readyz answers %d: %s", status, body)
	}

	write(t, filepath.Join(r.options.Config, "classes.yaml"), strings.ReplaceAll(files, "gold", "silver"))
	r.hangUp(t)
	r.until(t, "/metrics", `qos_class_capacity{class="silver",resource="test.example/cache"} 2`)
	if err := r.run(t, "test.example/cache=silver"); err != nil {
		t.Errorf("a class of the new files is not assigned: %v", err)
	}

	if err := r.terminate(t); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
}

// TestContainersAreCreatedAlthoughTheDiskOfTheStateDirectoryIsFull covers the creation of containers. The test for
// updates is in internal/node.
func TestContainersAreCreatedAlthoughTheDiskOfTheStateDirectoryIsFull(t *testing.T) {
	r := newRig(t, files)
	r.begin(t)
	r.synchronized(t, 1)
	must(t, r.run(t, "test.example/cache=gold"))
	link(t, "/dev/full", filepath.Join(r.options.StateDir, "changes.json.new"))
	if err := r.run(t, "test.example/cache=gold"); err != nil {
		t.Errorf("a creation failed, although it does not write the checkpoint: %v", err)
	}
	if err := r.terminate(t); err != nil {
		t.Error(err)
	}
}

func TestAnUnusableStateDirectoryEndsTheAgentBeforeItRegisters(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, o *agent.Options){
		"a file is in its place": func(t *testing.T, o *agent.Options) { write(t, o.StateDir, "") },
		"its lock is a directory": func(t *testing.T, o *agent.Options) {
			write(t, filepath.Join(o.StateDir, "lock", "x"), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, files)
			spoil(t, &r.options)
			r.begin(t)
			err := <-r.ended
			if err == nil || !strings.Contains(err.Error(), r.options.StateDir) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error is %v, want one line with %s", err, r.options.StateDir)
			}
			if path := (*os.PathError)(nil); !errors.As(err, &path) {
				t.Errorf("the error %v does not wrap its cause", err)
			}
			if got := r.runtime.Synchronizations(); got != 0 {
				t.Errorf("%d plugins were synchronized, want none", got)
			}
		})
	}
}
