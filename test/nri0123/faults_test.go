// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nri0123_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"github.com/qos-nri/qos-nri-plugin/test/child"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
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
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}

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
	if err := p.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			number, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}

	t.Fatalf("no %s in:\n%s", field, data)
	return 0
}

func (p *process) descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// weight is io.weight of a container.
func (r *rig) weight(t *testing.T, id string) string {
	t.Helper()
	weight, err := r.host.ReadFile(id, "io.weight")
	if err != nil {
		t.Fatal(err)
	}
	return weight
}

// create makes a container that requests a class, in a pod of its own.
func (r *rig) create(t *testing.T, name, class string) string {
	t.Helper()
	pod, err := r.RunPod(t.Context(), nriruntime.PodConfig{Name: name,
		Annotations: map[string]string{"container.qos.noderesource.dev/main": "blockio=" + class}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (p *process) goesOn(t *testing.T) {
	t.Helper()
	adaptation.SetPluginRequestTimeout(patience)
	p.signal(t, syscall.SIGCONT)
}

func TestFaultsWithTheRuntimeSideOfContainerd24(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "qos-nri-plugin")
	build := child.Command(t, "go", "build", "-C", "../..", "-o", binary, "./cmd/qos-nri-plugin")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, text)
	}

	t.Run("the two sides have the expected versions of NRI", func(t *testing.T) { versions(t, binary) })
	for name, test := range map[string]func(*testing.T, *rig){
		"a plugin that gets no CPU for a while recovers":                            missesRequests,
		"containers that were created meanwhile start in their class or not at all": startsWhatItMissed,
		"what a plugin that hangs means for pods that require it":                   hangsInEachHook,
		"five hundred containers with large specs are all reported":                 reportsManyContainers,
		"the largest environments that NRI transfers need little memory":            needsLittleMemory,
		"a hundred restarts of the runtime leak nothing":                            outlivesRestarts,
		"a plugin that is stopped leaves no container without its class":            leavesBetweenHooks,
		"SIGTERM during a hook ends the plugin, and the next one recovers":          endsInAHook,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, binary)
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
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
		if err := r.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}

	r.mustRun(t, "fourth", "solo")
}

// startsWhatItMissed creates two containers while the plugin is stopped. Both request a class of capacity 1. When they start, the plugin
// gives the class to the first container, and refuses the second.
func startsWhatItMissed(t *testing.T, r *rig) {
	p := r.start(t)
	p.stopped(t)
	r.mustRefuse(t, "late", "solo", "validator plugin 10-qos-nri-plugin failed")
	missed, late := r.create(t, "missed", "solo"), r.create(t, "too-many", "solo")
	p.goesOn(t)
	r.wait(t, 2)

	if err := r.StartContainer(t.Context(), missed); err != nil {
		t.Fatal(err)
	}

	if got := r.weight(t, missed); got != soloWeight {
		t.Errorf("the container was started with the weight %q", got)
	}

	if err := r.StartContainer(t.Context(), late); err == nil || !strings.Contains(err.Error(), "because qos-nri-plugin was not connected") {
		t.Errorf("the error of the second container is %v", err)
	}

	if got := r.host.Killed(); len(got) != 1 || got[0] != late {
		t.Errorf("the plugin ended the processes of %q, want those of %s", got, late)
	}

	r.holds(t)
}

func reportsManyContainers(t *testing.T, r *rig) {
	const containers, size = 500, 20 << 10
	p := r.start(t)
	r.mustRun(t, "solo", "solo")
	large := nriruntime.ContainerConfig{Name: "main", Env: []string{"LARGE=" + strings.Repeat("x", size)}}
	for i := range containers {
		runOne(t, r.Runtime, nriruntime.PodConfig{Name: fmt.Sprint("p", i),
			Annotations: map[string]string{"container.qos.noderesource.dev/main": "blockio=heavy"}}, large)
	}

	for i := range 3 {
		if err := r.Restart(); err != nil {
			t.Fatal(err)
		}
		r.wait(t, i+2)
	}

	if got := strings.Count(r.assignments(t), "heavy"); got != containers {
		t.Errorf("%d containers are reported in the class, want %d", got, containers)
	}

	r.mustRefuse(t, "late", "solo", "solo")
	if took := p.status(t, "VmHWM"); took > memoryLimit>>10 {
		t.Errorf("%d MiB of memory are in use", took>>10)
	}
}

// assignments returns the plugin's assignments.
func (r *rig) assignments(t *testing.T) string {
	t.Helper()
	text, err := child.Command(t, r.binary, "assignments", "--api-socket", filepath.Join(r.dir, "qos.sock")).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// outlivesRestarts restarts the runtime more than a hundred times. At every fifth restart, the runtime is first killed
// between the registration of the plugin and its configuration.
func outlivesRestarts(t *testing.T, r *rig) {
	const warm, times = 10, 100
	p := r.start(t)
	id := r.mustRun(t, "solo", "solo")
	var descriptors, threads, memory int
	for i := range warm + times {
		if i == warm {
			descriptors, threads, memory = p.descriptors(t), p.status(t, "Threads"), p.status(t, "VmRSS")
		}
		r.Stop()
		if i%5 == 0 {
			died, err := nriruntime.DieDuringHandshake(r.Socket())
			if err != nil {
				t.Fatal(err)
			}
			<-died
		}
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		r.wait(t, i+2)
	}

	if got := p.descriptors(t); got > descriptors+times/10 {
		t.Errorf("%d descriptors, %d before", got, descriptors)
	}

	if got := p.status(t, "Threads"); got > threads+times/10 {
		t.Errorf("%d threads, %d before", got, threads)
	}

	if got := p.status(t, "VmRSS"); got > memory+10<<10 {
		t.Errorf("%d KiB of memory, %d before", got, memory)
	}

	if got := r.weight(t, id); got != soloWeight {
		t.Errorf("io.weight is %q", got)
	}

	r.mustRefuse(t, "late", "solo", "solo")
}

// slowKernel is a host on which reading the values of some containers blocks.
type slowKernel struct {
	*hostdir.Host
	// If next is true, the io.weight of the next container blocks its readers. The path of this file is then sent to
	// fifo.
	next *atomic.Bool
	fifo chan string
}

// Create replaces io.weight of the next container by a pipe, which blocks its readers, if next is true.
func (s slowKernel) Create(ctx context.Context, spec nriruntime.Spec) (int, error) {
	pid, err := s.Host.Create(ctx, spec)
	if err != nil || !s.next.Swap(false) {
		return pid, err
	}
	file := filepath.Join(s.Root, "sys/fs/cgroup", nriruntime.CgroupDir(spec.CgroupsPath), "io.weight")
	err = errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600))
	s.fifo <- file
	return pid, err
}

// endsInAHook sends SIGTERM while a hook is blocked in a read.
func endsInAHook(t *testing.T, r *rig) {
	r.Stop()
	kernel := slowKernel{r.host, &atomic.Bool{}, make(chan string, 1)}
	var err error
	if r.Runtime, err = nriruntime.New(r.dir, nriruntime.Options{OCI: kernel}); err != nil {
		t.Fatal(err)
	}

	if err := r.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(r.Stop)
	p := r.start(t)
	before := r.mustRun(t, "before", "heavy")
	id := r.create(t, "hangs", "solo")
	kernel.next.Store(true)
	started := make(chan error, 1)
	go func() { started <- r.StartContainer(t.Context(), id) }()
	defer awaitReader(t, <-kernel.fifo).Close()
	p.signal(t, syscall.SIGTERM)
	if err := <-p.ended; err != nil { // the plugin must end although the read is blocked
		t.Errorf("the plugin ended with %v", err)
	}

	if err := <-started; err == nil || !strings.Contains(err.Error(), "qos-nri-plugin is being stopped") {
		t.Errorf("the error of the container that was about to start is %v", err)
	}

	if err := r.RemoveContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}

	r.start(t)
	r.mustRun(t, "next", "solo")
	r.mustRefuse(t, "late", "solo", "solo")
	if got := r.weight(t, before); got != "default 10000\n" {
		t.Errorf("io.weight of the container that kept running is %q", got)
	}
}

// awaitReader waits until a pipe has a reader, which stays blocked.
func awaitReader(t *testing.T, fifo string) *os.File {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		file, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			return file
		}
		if time.Now().After(deadline) {
			t.Fatalf("no hook reads the file: %v", err)
		}
	}
}
