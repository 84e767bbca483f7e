// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// newRuntime starts a runtime in a directory with a name short enough for a socket.
func newRuntime(t *testing.T, options nriruntime.Options) *nriruntime.Runtime {
	t.Helper()
	dir, err := os.MkdirTemp("", "nri")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r, err := nriruntime.New(dir, options)
	if err != nil {
		t.Fatal(err)
	}

	if err := r.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(r.Stop)
	return r
}

// connect registers the plugin `p` and waits until the runtime sends events to `p`.
func connect(t *testing.T, r *nriruntime.Runtime, p *plugin) stub.Stub {
	t.Helper()
	n := r.Synchronizations()
	s, err := stub.New(p, stub.WithPluginName("recorder"), stub.WithPluginIdx("10"), stub.WithSocketPath(r.Socket()),
		stub.WithOnClose(func() {}))
	if err != nil {
		t.Fatal(err)
	}

	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(s.Stop)
	if err := r.WaitSynchronized(t.Context(), n+1); err != nil {
		t.Fatal(err)
	}

	return s
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func runPod(t *testing.T, r *nriruntime.Runtime, name string) string {
	t.Helper()
	return must[string](t)(r.RunPod(t.Context(), nriruntime.PodConfig{Name: name}))
}

func create(t *testing.T, r *nriruntime.Runtime, pod, name string) string {
	t.Helper()
	return must[string](t)(r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: name}))
}

func TestLifecycle(t *testing.T) {
	t.Run("all hooks of a container are called in order, and once each", func(t *testing.T) {
		r, p := newRuntime(t, nriruntime.Options{}), &plugin{}
		connect(t, r, p)
		pod := runPod(t, r, "pod")
		id := create(t, r, pod, "main")
		check(t, r.StartContainer(t.Context(), id))
		exited := must[<-chan struct{}](t)(r.Exit(t.Context(), id))
		<-exited
		check(t, r.StopContainer(t.Context(), id))
		check(t, r.RemoveContainer(t.Context(), id))
		check(t, r.RemovePod(t.Context(), pod))
		want := []string{"run pod", "create main", "start main", "stop main", "remove main", "stop pod", "remove pod"}
		if diff := cmp.Diff(want, p.received()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a refused creation is undone completely", func(t *testing.T) {
		r, p := newRuntime(t, nriruntime.Options{}), &plugin{create: func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error) {
			return nil, errors.New("class gold is full")
		}}
		connect(t, r, p)
		pod := runPod(t, r, "pod")
		id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
		if err == nil || !strings.Contains(err.Error(), "class gold is full") {
			t.Errorf("got %v, %v", id, err)
		}
		if diff := cmp.Diff([]string{"run pod", "create main", "stop main", "remove main"}, p.received()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a refused pod does not run", func(t *testing.T) {
		r, p := newRuntime(t, nriruntime.Options{}), &plugin{}
		connect(t, r, p)
		if _, err := r.RunPod(t.Context(), nriruntime.PodConfig{Name: "refused"}); err == nil {
			t.Error("the pod runs")
		}
		if diff := cmp.Diff([]string{"run refused", "stop refused", "remove refused"}, p.received()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a container whose start hook fails is stopped, with a message", func(t *testing.T) {
		var pid uint32
		r, p := newRuntime(t, nriruntime.Options{}), &plugin{start: func(c *api.Container) error {
			pid = c.Pid
			return errors.New("io.max reads otherwise")
		}}

		connect(t, r, p)
		id := create(t, r, runPod(t, r, "pod"), "main")
		if err := r.StartContainer(t.Context(), id); err == nil {
			t.Error("the container started")
		}

		c := must[nriruntime.Container](t)(r.Container(id))
		if pid == 0 || c.State != api.ContainerState_CONTAINER_STOPPED || !strings.Contains(c.Message, "io.max reads otherwise") {
			t.Errorf("hook saw process %d, container is %+v", pid, c)
		}

		if diff := cmp.Diff([]string{"run pod", "create main", "start main", "stop main"}, p.received()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("removing a pod removes its running containers", func(t *testing.T) {
		r, p := newRuntime(t, nriruntime.Options{}), &plugin{}
		connect(t, r, p)
		pod := runPod(t, r, "pod")
		check(t, r.StartContainer(t.Context(), create(t, r, pod, "main")))
		check(t, r.RemovePod(t.Context(), pod))
		got := p.received()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"create main", "remove main", "remove pod", "run pod", "start main", "stop main", "stop pod"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func goldAdjustment(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error) {
	a := &api.ContainerAdjustment{}
	a.AddAnnotation("origin", "yes")
	a.AddLinuxUnified("io.max", "8:0 rbps=1")
	a.SetLinuxRDTClosID("qos-gold")
	return a, nil
}

func TestSpec(t *testing.T) {
	t.Run("runc gets the adjustments of the plugins", func(t *testing.T) {
		m := &machine{}
		r := newRuntime(t, nriruntime.Options{OCI: m})
		connect(t, r, &plugin{create: goldAdjustment})
		check(t, r.StartContainer(t.Context(), create(t, r, runPod(t, r, "pod"), "main")))
		if m.created.ClosID != "qos-gold" || m.created.Unified["io.max"] != "8:0 rbps=1" || m.created.Annotations["origin"] != "yes" {
			t.Errorf("got %+v", m.created)
		}
	})
	t.Run("a container that runc cannot make is not started, and no further hook is called", func(t *testing.T) {
		m := &machine{refuse: errors.New("no such group")}
		r, p := newRuntime(t, nriruntime.Options{OCI: m}), &plugin{}
		connect(t, r, p)
		err := r.StartContainer(t.Context(), create(t, r, runPod(t, r, "pod"), "main"))
		if !errors.Is(err, m.refuse) {
			t.Errorf("got %v", err)
		}
		if diff := cmp.Diff([]string{"run pod", "create main"}, p.received()); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a resize sends the stored values again, and keeps what a plugin adds", func(t *testing.T) {
		m := &machine{}
		r := newRuntime(t, nriruntime.Options{OCI: m})
		p := &plugin{create: goldAdjustment}
		connect(t, r, p)
		id := create(t, r, runPod(t, r, "pod"), "main")
		check(t, r.StartContainer(t.Context(), id))
		resize := &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(512))}}
		check(t, r.UpdateContainer(t.Context(), id, resize))
		p.update = func(c *api.Container, _ *api.LinuxResources) []*api.ContainerUpdate {
			u := &api.ContainerUpdate{ContainerId: c.Id}
			u.AddLinuxUnified("io.max", "8:0 rbps=2")
			return []*api.ContainerUpdate{u}
		}

		check(t, r.UpdateContainer(t.Context(), id, resize))
		p.update = nil
		check(t, r.UpdateContainer(t.Context(), id, resize))
		want := []map[string]string{{"io.max": "8:0 rbps=1"}, {"io.max": "8:0 rbps=2"}, {"io.max": "8:0 rbps=2"}}
		if diff := cmp.Diff(want, m.unified); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("annotations of CRI hide those of the spec", func(t *testing.T) {
		r := newRuntime(t, nriruntime.Options{})
		p := &plugin{create: goldAdjustment}
		s := connect(t, r, p)
		pod := runPod(t, r, "pod")
		config := nriruntime.ContainerConfig{Name: "main", Annotations: map[string]string{"origin": "by the kubelet"}}
		must[string](t)(r.CreateContainer(t.Context(), pod, config))
		s.Stop()
		connect(t, r, p)
		if got := p.synced[0].Annotations["origin"]; got != "by the kubelet" {
			t.Errorf("the annotation is %q, want that of the kubelet", got)
		}
	})
}

func TestAnUnsolicitedUpdateChangesTheSpecOnlyIfRuncAcceptsIt(t *testing.T) {
	m := &machine{}
	r := newRuntime(t, nriruntime.Options{OCI: m})
	s := connect(t, r, &plugin{})
	id := create(t, r, runPod(t, r, "pod"), "main")
	check(t, r.StartContainer(t.Context(), id))
	update := func(value string) ([]*api.ContainerUpdate, error) {
		u := &api.ContainerUpdate{ContainerId: id}
		u.AddLinuxUnified("io.max", value)
		return s.UpdateContainers([]*api.ContainerUpdate{u})
	}

	unified := func() string { return must[nriruntime.Container](t)(r.Container(id)).Spec.Unified["io.max"] }
	if failed, err := update("8:0 wbps=1"); err != nil || len(failed) > 0 || unified() != "8:0 wbps=1" {
		t.Errorf("a valid update: %v, %v, io.max is %q", failed, err, unified())
	}

	m.refusing(errors.New("ENODEV"))
	if _, err := update("9:9 wbps=1"); err == nil || unified() != "8:0 wbps=1" {
		t.Errorf("an update that runc refuses: %v, io.max is %q", err, unified())
	}
}

func TestRestart(t *testing.T) {
	t.Run("a plugin that reconnects is synchronized with the containers that have not ended", func(t *testing.T) {
		r, p := newRuntime(t, nriruntime.Options{}), &plugin{}
		pod := runPod(t, r, "pod")
		check(t, r.StartContainer(t.Context(), create(t, r, pod, "runs")))
		create(t, r, pod, "made")
		gone := create(t, r, pod, "gone")
		check(t, r.StartContainer(t.Context(), gone))
		check(t, r.StopContainer(t.Context(), gone))
		connect(t, r, p)
		check(t, r.Restart())
		p.synced = nil
		connect(t, r, p)
		var got []string
		for _, c := range p.synced {
			got = append(got, fmt.Sprint(c.Name, " ", c.State, " ", c.Pid))
		}

		if diff := cmp.Diff([]string{"runs CONTAINER_RUNNING 1", "made CONTAINER_CREATED 0"}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a runtime can start after another one has died during the handshake with a plugin", func(t *testing.T) {
		r, p := newRuntime(t, nriruntime.Options{}), &plugin{}
		r.Stop()
		died := must[<-chan struct{}](t)(nriruntime.DieDuringHandshake(r.Socket()))
		s := must[stub.Stub](t)(stub.New(p, stub.WithPluginName("recorder"), stub.WithPluginIdx("10"),
			stub.WithSocketPath(r.Socket()), stub.WithOnClose(func() {})))
		go func() { _ = s.Start(t.Context()) }() // waits for its configuration forever, and nothing can end that
		<-died
		check(t, r.Start())
		connect(t, r, p)
	})
	t.Run("nothing can be created while the runtime is down", func(t *testing.T) {
		r := newRuntime(t, nriruntime.Options{})
		pod := runPod(t, r, "pod")
		r.Stop()
		if _, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"}); !errors.Is(err, nriruntime.ErrDown) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOfParallelCreationsOnlyTheAdmittedSucceed(t *testing.T) {
	admitted := 0 // guarded by the runtime's lock around hooks
	r, p := newRuntime(t, nriruntime.Options{}), &plugin{create: func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error) {
		if admitted == 5 {
			return nil, errors.New("full")
		}
		admitted++
		return nil, nil
	}}

	connect(t, r, p)
	pod := runPod(t, r, "pod")
	var wg sync.WaitGroup
	errs := make(chan error, 50)
	for i := range 50 {
		wg.Go(func() {
			_, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: fmt.Sprint("c", i)})
			errs <- err
		})
	}

	wg.Wait()
	close(errs)
	made := 0
	for err := range errs {
		if err == nil {
			made++
		}
	}

	if made != 5 {
		t.Errorf("%d of 50 were made, the plugin admitted 5", made)
	}
}

func TestCgroupDir(t *testing.T) {
	for path, want := range map[string]string{
		"/kubepods/pod1/c": "/kubepods/pod1/c",
		"kubepods-besteffort-pod1.slice:cri-containerd:c": "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-c.scope",
	} {
		if got := nriruntime.CgroupDir(path); got != want {
			t.Errorf("%s is in %s, want %s", path, got, want)
		}
	}

	for name, systemd := range map[string]bool{"cgroupfs": false, "systemd": true} {
		t.Run(name+" paths of a container are below the cgroup of its pod", func(t *testing.T) {
			r, p := newRuntime(t, nriruntime.Options{SystemdCgroups: systemd}), &plugin{}
			var parent, own string
			p.create = func(pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
				parent, own = pod.Linux.CgroupParent, c.Linux.CgroupsPath
				return nil, nil
			}
			connect(t, r, p)
			create(t, r, runPod(t, r, "pod"), "main")
			if dir := nriruntime.CgroupDir(own); !strings.HasPrefix(dir, parent+"/") {
				t.Errorf("%s is not in %s", dir, parent)
			}
		})
	}
}
