// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/external"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// memoryKind is a kind whose classes are relative to what the kubelet has described: the class "low" lowers the OOM score by 200, "tight"
// throttles at 80% of the memory limit, "loose" at 90%, and "idle" runs only on idle CPUs.
func memoryKind() classes.Kind {
	return classes.Kind{
		Field: "memory", Scopes: []classes.Scope{classes.ContainerScope}, Mutable: true,
		Parse: func(*classes.Field, classes.Scope) classes.BackendConfig { return memoryConfig{} },
		New:   func(string, classes.Scope) classes.Backend { return memoryBackend{} },
	}
}

type memoryConfig struct{}

func (memoryConfig) ClassNames() []string { return []string{"low", "tight", "loose", "idle"} }

type memoryBackend struct{ classes.Backend }

func (memoryBackend) Check(context.Context, classes.BackendConfig) error            { return nil }
func (memoryBackend) Apply(context.Context, classes.BackendConfig) error            { return nil }
func (memoryBackend) Release(context.Context, func(string) bool) error              { return nil }
func (memoryBackend) Enforce(context.Context, classes.Holder, string, string) error { return nil }
func (memoryBackend) Status() classes.BackendStatus                                 { return classes.BackendStatus{} }

func (memoryBackend) Observe(_ context.Context, _ classes.Holder, want string) (classes.Observation, error) {
	return classes.Observation{Class: want, Known: true}, nil
}

func (memoryBackend) Adjust(target classes.Holder, _, to string) (classes.Adjustment, error) {
	high := func(percent int64) classes.Adjustment {
		return classes.Adjustment{classes.Unified("memory.high"): fmt.Sprint(target.Spec.MemoryLimit * percent / 100)}
	}
	switch to {
	case "low":
		score := target.Spec.Settings[classes.Setting{Name: classes.SettingOOMScoreAdj}]
		var has int
		_, _ = fmt.Sscan(score, &has)
		return classes.Adjustment{{Name: classes.SettingOOMScoreAdj}: fmt.Sprint(has - 200)}, nil
	case "tight":
		return high(80), nil
	case "loose":
		return high(90), nil
	case "idle":
		return classes.Adjustment{{Name: classes.SettingScheduler}: "policy=SCHED_IDLE"}, nil
	}
	return classes.Adjustment{classes.Unified("memory.high"): "max"}, nil
}

const (
	memoryQoS  = "vendor.example/memory"
	memoryFile = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- {name: " + memoryQoS + ", memory: {}}\n" +
		"- {name: " + xyz + ", classes: [{name: high}], external: {}}\n"
)

func memoryKinds() []classes.Kind { return []classes.Kind{memoryKind(), external.Kind()} }

// newMemoryRig returns a runtime and a node with the resource memoryQoS.
func newMemoryRig(t *testing.T, options nriruntime.Options) *rig {
	t.Helper()
	r := &rig{Runtime: newRuntime(t, options)}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	r.node = node.New(node.Options{Kinds: memoryKinds(), Log: slog.New(slog.DiscardHandler)})
	configure(t, r.node, memoryKinds(), memoryFile)
	r.plugin, r.stop = startPlugin(t, r.node, r.Runtime)
	r.wait(t, 1)
	return r
}

// memory returns the resources of a container with this limit, in bytes, and with what the kubelet's MemoryQoS would write.
func memory(limit int64, high string) *api.LinuxResources {
	return &api.LinuxResources{
		Memory:  &api.LinuxMemory{Limit: api.Int64(limit)},
		Unified: map[string]string{"memory.high": high, "memory.oom.group": "1"},
	}
}

// runWithMemory runs a container with a memory limit of 1000.
func (r *rig) runWithMemory(t *testing.T, request string) string {
	t.Helper()
	pod := r.pod(t, "a", request)
	id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main", Resources: memory(1000, "700")})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func (r *rig) wantFile(t *testing.T, id, file, want string) {
	t.Helper()
	c, err := r.Container(id)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Spec.Unified[file]; got != want {
		t.Errorf("the runtime has stored %s %q, want %q", file, got, want)
	}
}

// TestTheValuesOfAClassAreRelativeToWhatTheKubeletRequests uses a container with a memory limit of 1000 bytes. Class
// tight has 80% of it as memory.high.
func TestTheValuesOfAClassAreRelativeToWhatTheKubeletRequests(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{})
	r.wantFile(t, r.runWithMemory(t, memoryQoS+"=tight"), "memory.high", "800")

	low, err := r.Container(r.runWithMemory(t, memoryQoS+"=low"))
	if err != nil {
		t.Fatal(err)
	}
	if low.Spec.OOMScoreAdj != -200 {
		t.Errorf("the OOM score is %d, want -200", low.Spec.OOMScoreAdj)
	}
}

// TestAResizeWritesTheClassAndNotTheValueOfTheKubelet uses class tight, whose memory.high is 80% of the memory limit.
func TestAResizeWritesTheClassAndNotTheValueOfTheKubelet(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{})
	id := r.runWithMemory(t, memoryQoS+"=tight")
	if err := r.UpdateContainer(t.Context(), id, memory(2000, "1400")); err != nil {
		t.Fatal(err)
	}
	r.wantFile(t, id, "memory.high", "1600")
	r.wantFile(t, id, "memory.oom.group", "1")

	e, _ := r.node.Get(id)
	if err := r.node.Update(t.Context(), e.Subject(), map[string]string{memoryQoS: ""}); err != nil {
		t.Fatal(err)
	}
	r.wantFile(t, id, "memory.high", "1400") // the newer value of the kubelet
}

func TestAContainerThatLeavesItsClassGetsTheOriginalValueBack(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{})
	id := r.runWithMemory(t, memoryQoS+"=tight")
	if err := r.Restart(); err != nil { // the plugin has to read the original value from the container
		t.Fatal(err)
	}
	r.wait(t, 2)

	e, _ := r.node.Get(id)
	for _, change := range []struct{ class, high string }{{"loose", "900"}, {"", "700"}} {
		if err := r.node.Update(t.Context(), e.Subject(), map[string]string{memoryQoS: change.class}); err != nil {
			t.Fatal(err)
		}
		r.wantFile(t, id, "memory.high", change.high)
	}
}

// TestAContainerGetsTheLastValueOfTheKubeletEvenIfItsClassHadTheSame uses a resize to 1000 bytes, for which class tight and the
// kubelet both have a memory.high of 800.
func TestAContainerGetsTheLastValueOfTheKubeletEvenIfItsClassHadTheSame(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{})
	id := r.runWithMemory(t, memoryQoS+"=tight")
	if err := r.UpdateContainer(t.Context(), id, memory(1000, "800")); err != nil {
		t.Fatal(err)
	}
	r.wantFile(t, id, "memory.high", "800")

	e, _ := r.node.Get(id)
	if err := r.node.Update(t.Context(), e.Subject(), map[string]string{memoryQoS: ""}); err != nil {
		t.Fatal(err)
	}
	r.wantFile(t, id, "memory.high", "800")
}

func TestAResizeOfAContainerWithoutAClassIsNotChanged(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{})
	id := r.runWithMemory(t, "")
	if err := r.UpdateContainer(t.Context(), id, memory(2000, "1400")); err != nil {
		t.Fatal(err)
	}
	r.wantFile(t, id, "memory.high", "1400")
}

func TestAChangeOfAValueThatIsSetAtCreationOnlyIsRefused(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{})
	id := r.runWithMemory(t, memoryQoS+"=tight")
	e, _ := r.node.Get(id)
	err := r.node.Update(t.Context(), e.Subject(), map[string]string{memoryQoS: "low"})
	want := `the class of a running container or pod cannot be changed: class "low" has another process.oomScoreAdj than class "tight"`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if now, _ := r.node.Get(id); now.Class(memoryQoS) != "tight" {
		t.Errorf("the class is %q, want tight", now.Class(memoryQoS))
	}
}

func TestAClassOfAnotherResourceCanChangeBesideAValueThatIsSetAtCreationOnly(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{})
	id := r.runWithMemory(t, memoryQoS+"=low")
	if err := r.Restart(); err != nil { // the original OOM score is then in the annotation of the container
		t.Fatal(err)
	}
	r.wait(t, 2)

	e, _ := r.node.Get(id)
	for _, class := range []string{"high", ""} {
		if err := r.node.Update(t.Context(), e.Subject(), map[string]string{xyz: class}); err != nil {
			t.Error(err)
		}
	}
}

// TestThePluginDoesNotChangeAResizeIfNoClassFilesAreLoaded restarts the plugin without class files, e.g. because they are invalid.
func TestThePluginDoesNotChangeAResizeIfNoClassFilesAreLoaded(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{})
	id := r.runWithMemory(t, memoryQoS+"=tight")
	r.stop()
	r.node = node.New(node.Options{Kinds: memoryKinds(), Log: slog.New(slog.DiscardHandler)})
	r.plugin, r.stop = startPlugin(t, r.node, r.Runtime)
	r.wait(t, 2)
	if err := r.UpdateContainer(t.Context(), id, memory(2000, "1400")); err != nil {
		t.Fatal(err)
	}
	r.wantFile(t, id, "memory.high", "1400")
}

// TestASettingThatTheRuntimeDoesNotKnowIsRefused simulates containerd 2.1, whose NRI 0.8 drops a scheduling policy without an error.
func TestASettingThatTheRuntimeDoesNotKnowIsRefused(t *testing.T) {
	r := newMemoryRig(t, nriruntime.Options{Name: "containerd", Version: "v2.1.0"})
	_, err := r.CreateContainer(t.Context(), r.pod(t, "a", memoryQoS+"=idle"), nriruntime.ContainerConfig{Name: "main"})
	want := "pod default/a container main: process.scheduler: the runtime has NRI v0.8.0, and only NRI 0.11 or later sets it; upgrade the runtime"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if refused := r.node.Refused(); len(refused) != 1 || refused[0].Reason != "EnforcementFailed" {
		t.Errorf("refused: %+v", refused)
	}
}
