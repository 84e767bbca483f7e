// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nri0123_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// These are contents of io.weight: in class solo, and before a class is set.
const (
	soloWeight    = "default 3940\n"
	initialWeight = "default 100\n"
)

// process is a plugin process.
type process struct {
	*exec.Cmd
	ended chan error
}

// start starts a plugin and waits until it is synchronized. The plugin ends with the test at the latest.
func (r *rig) start(t *testing.T) *process {
	t.Helper()
	log := &output{}
	p := &process{r.command(t), make(chan error, 1)}
	p.Stderr = log
	n := r.Synchronizations()
	must(t, p.Start())

	go func() { p.ended <- p.Wait() }()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		if t.Failed() {
			t.Logf("output of the plugin:\n%s", log)
		}
	})

	r.wait(t, n+1)
	return p
}

func (p *process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	must(t, p.Process.Signal(signal))
}

// stopped sends SIGSTOP to the process, and waits until the kernel has stopped the process. It also shortens the runtime's
// request timeout, so that the runtime soon gives up waiting for the plugin.
func (p *process) stopped(t *testing.T) {
	t.Helper()
	adaptation.SetPluginRequestTimeout(400 * time.Millisecond)
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(patience) })
	p.signal(t, syscall.SIGSTOP)
	for deadline := time.Now().Add(patience); ; {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		must(t, err)
		if _, rest, _ := strings.Cut(string(data), ") "); strings.HasPrefix(rest, "T") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not stopped: %s", data)
		}
	}
}

// status returns a number of /proc/PID/status.
func (p *process) status(t *testing.T, field string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	must(t, err)

	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			number, err := strconv.Atoi(strings.Fields(value)[0])
			must(t, err)
			return number
		}
	}

	t.Fatalf("no %s in:\n%s", field, data)
	return 0
}

// weight is io.weight of a container.
func (r *rig) weight(t *testing.T, id string) string {
	t.Helper()
	weight, err := r.host.ReadFile(id, "io.weight")
	must(t, err)
	return weight
}

// goesOn resumes the process after `stopped`, and gives the runtime its long request timeout back.
func (p *process) goesOn(t *testing.T) {
	t.Helper()
	adaptation.SetPluginRequestTimeout(patience)
	p.signal(t, syscall.SIGCONT)
}

// TestFaultsWithTheRuntimeSideOfContainerd24 uses the cases that depend on NRI's version. internal/nriplugin tests the other faults,
// such as restarts of the runtime, large specifications, and SIGTERM during a hook.
func TestFaultsWithTheRuntimeSideOfContainerd24(t *testing.T) {
	binary := child.Build(t, "../..", "qos-nri-plugin")
	t.Run("the two sides have the expected versions of NRI", func(t *testing.T) { versions(t, binary) })
	for name, test := range map[string]func(*testing.T, *rig){
		"a plugin that gets no CPU for a while recovers":                 missesRequests,
		"pods that require the plugin are not created while it hangs":    hangsInEachHook,
		"the largest environments that NRI transfers need little memory": needsLittleMemory,
		"changes of classes beside hooks do not hang the runtime":        changesBesideHooks,
		"a plugin that is stopped leaves no container without its class": leavesBetweenHooks,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, binary)
			must(t, r.Start())
			test(t, r)
		})
	}
}

// missesRequests stops the plugin while containers are created. With an NRI before 0.12.5, the runtime continues without a
// plugin that answers too late. Only the creation of the first container fails, because the runtime has not yet removed
// the plugin from its validators.
func missesRequests(t *testing.T, r *rig) {
	p := r.start(t)
	before := r.mustRun(t, "before", "heavy")
	p.stopped(t)
	r.mustRefuse(t, "late", "solo", "validator plugin 10-qos-nri-plugin failed")
	first, second := r.mustRun(t, "first", "solo"), r.mustRun(t, "second", "solo")
	p.goesOn(t)
	r.wait(t, 2)
	r.mustRefuse(t, "third", "solo", "solo")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for r.weight(t, first) == initialWeight && r.weight(t, second) == initialWeight && ctx.Err() == nil {
		// The plugin moves one of the two containers to the class later.
	}

	weights := []string{r.weight(t, first), r.weight(t, second)}
	if (weights[0] == soloWeight) == (weights[1] == soloWeight) || r.weight(t, before) != "default 10000\n" {
		t.Errorf("the two containers that request the class of capacity 1 have the weights %q, and the container before them has %q", weights, r.weight(t, before))
	}

	for _, id := range []string{first, second} {
		must(t, r.RemoveContainer(t.Context(), id))
	}

	r.mustRun(t, "fourth", "solo")
}

// assignments returns the plugin's assignments.
func (r *rig) assignments(t *testing.T) string {
	t.Helper()
	text, err := child.Command(t, r.binary, "assignments", "--api-socket", filepath.Join(r.dir, "qos.sock")).Output()
	must(t, err)
	return string(text)
}
