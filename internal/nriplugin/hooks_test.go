// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

// runtimeSide is a stub whose runtime supports all features that the plugin uses, and reports a request timeout.
type runtimeSide struct {
	stub.Stub
	timeout time.Duration
}

func (r runtimeSide) RequestTimeout() time.Duration { return r.timeout }
func (runtimeSide) RuntimeNRIVersion() string       { return "v0.12.5" }
func (runtimeSide) UpdateContainers([]*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

const twoScopes = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: test.example/cache
  classes: [{name: gold, capacity: 2}, {name: bronze}]
  test: {names: [gold, bronze]}
- name: test.example/net
  scope: pod
  test: {names: [high, low]}
`

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sessionOf returns a session that the runtime has configured. Its node has a class file.
func sessionOf(t *testing.T, text string) (*session, *node.Node) {
	t.Helper()
	backends := map[string]*nodetest.Backend{}
	for _, resource := range []string{"test.example/cache", "test.example/net", "test.example/volume"} {
		backends[resource] = nodetest.NewBackend()
	}
	kinds := []classes.Kind{nodetest.Kind("test", []classes.Scope{classes.ContainerScope, classes.PodScope, classes.VolumeScope}, backends)}
	log := slog.New(slog.DiscardHandler)
	n := node.New(node.Options{Kinds: kinds, Log: log})
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, kinds, nil)
	must(t, err)
	must(t, n.Configure(t.Context(), classes.FileSet{Config: config}))

	s := newSession(New(n, Options{Log: log}))
	s.stub = runtimeSide{timeout: time.Minute}
	_, err = s.Configure(t.Context(), "", "", "")
	must(t, err)
	return s, n
}

func oneOf[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

func text(random *rand.Rand) string {
	return oneOf(random, "", "a", "b", "c", "../x", "\x1b[31m", strings.Repeat("z", 3000), "\xff\xfe")
}

func annotations(random *rand.Rand) map[string]string {
	all := map[string]string{}
	for range random.IntN(4) {
		key := oneOf(random, "qos.noderesource.dev/pod", "container.qos.noderesource.dev/a", "container.qos.noderesource.dev/",
			"allocated.qos.noderesource.dev/x", "assigned.qos.noderesource.dev", classes.EffectiveKey, "io.kubernetes.cri.rdt-class")
		all[key] = oneOf(random, "test.example/cache=gold", "test.example/net=high", "=", ",", "test.example/cache=", "a=b=c", "[null]", "null",
			`[{"Resource":"test.example/cache","Class":"gold","Source":"container"}]`, `[{"Resource":"nope","Class":"gold"}]`)
	}
	return all
}

func podSandbox(random *rand.Rand) *api.PodSandbox {
	if random.IntN(12) == 0 {
		return oneOf(random, nil, &api.PodSandbox{}, &api.PodSandbox{Linux: &api.LinuxPodSandbox{}})
	}
	return &api.PodSandbox{Id: text(random), Uid: text(random), Name: text(random), Namespace: text(random), Annotations: annotations(random), Pid: random.Uint32()}
}

func containerMessage(random *rand.Rand) *api.Container {
	if random.IntN(12) == 0 {
		return oneOf(random, nil, &api.Container{}, &api.Container{Linux: &api.LinuxContainer{Resources: &api.LinuxResources{}}})
	}
	return &api.Container{
		Id: text(random), PodSandboxId: text(random), Name: text(random), Annotations: annotations(random), Pid: random.Uint32(),
		State: api.ContainerState(random.Int32N(7)), CreatedAt: random.Int64(),
	}
}

// TestHooksInAnyOrderWithAnyFieldsKeepTheNodeConsistent calls hooks at random. There are few different IDs, so that several
// hooks are about the same container. Fields may be missing.
func TestHooksInAnyOrderWithAnyFieldsKeepTheNodeConsistent(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		s, n := sessionOf(t, twoScopes)
		for range 300 {
			s.callAtRandom(t, random)
			if inUse := nodetest.InUse(n.Status(), "test.example/cache", "gold"); inUse < 0 {
				t.Fatalf("seed %d: %d slots of gold are in use", seed, inUse)
			}
			for _, r := range n.Refused() {
				if strings.Contains(r.Message, "\n") {
					t.Fatalf("seed %d: the refusal has several lines: %q", seed, r.Message)
				}
			}
		}

		if _, err := s.Synchronize(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		n.Reconcile(t.Context())
		if left := n.Assignments(); len(left) > 0 || nodetest.InUse(n.Status(), "test.example/cache", "gold") > 0 {
			t.Errorf("seed %d: after all pods have ended, the assignments are %v", seed, left)
		}
	}
}

// callAtRandom calls one hook, or updates a container. It ignores errors, because the node refuses many of these calls.
func (s *session) callAtRandom(t *testing.T, random *rand.Rand) {
	t.Helper()
	ctx, p, c := t.Context(), podSandbox(random), containerMessage(random)
	switch random.IntN(9) {
	case 0, 1:
		_, _, _ = s.CreateContainer(ctx, p, c)
	case 2:
		_ = s.StartContainer(ctx, p, c)
	case 3:
		_, _ = s.StopContainer(ctx, p, c)
	case 4:
		_ = s.RunPodSandbox(ctx, p)
	case 5:
		_ = s.RemovePodSandbox(ctx, p)
	case 6:
		_, _ = s.Synchronize(ctx, []*api.PodSandbox{p, podSandbox(random)}, []*api.Container{c, containerMessage(random)})
	case 7:
		_ = s.ValidateContainerAdjustment(ctx, &api.ValidateContainerAdjustmentRequest{
			Pod: p, Container: c, Plugins: []*api.PluginInstance{nil, {Name: text(random)}},
		})
	default:
		s.plugin.node.Reconcile(ctx)
		owner := qos.Subject{PodUID: text(random), Container: text(random)}
		_ = s.plugin.node.Update(ctx, owner, map[string]string{"test.example/cache": oneOf(random, "gold", "bronze", "", "x")})
	}
}

// TestNoContainerIsEndedOnceTheRuntimeWaitsNoLonger refuses to start a container. The plugin ends the container only while
// the runtime waits for the hook. If the context of the hook has ended, the container may already be running.
func TestNoContainerIsEndedOnceTheRuntimeWaitsNoLonger(t *testing.T) {
	for name, waits := range map[string]bool{"the runtime waits": true, "the runtime waits no longer": false} {
		t.Run(name, func(t *testing.T) {
			killed, log := "", slog.New(slog.DiscardHandler)
			s := newSession(New(node.New(node.Options{Log: log, Kill: func(h classes.Holder) error {
				killed = h.ID
				return nil
			}}), Options{Log: log}))

			s.stub = runtimeSide{timeout: time.Minute}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !waits {
				cancel()
			}

			p := &api.PodSandbox{Uid: "u", Annotations: map[string]string{classes.PodKey: "test.example/none=gold"}}
			if s.StartContainer(ctx, p, &api.Container{Id: "c", Name: "main"}) == nil {
				t.Fatal("the start was not refused")
			}

			if (killed == "c") != waits {
				t.Errorf("the plugin has ended container %q", killed)
			}
		})
	}
}

// TestAPluginThatDisconnectsRefusesContainersWhoseVolumesHaveClasses uses containers whose creation needs no
// adjustment, because the plugin itself sets the limits of volumes at the start.
func TestAPluginThatDisconnectsRefusesContainersWhoseVolumesHaveClasses(t *testing.T) {
	const resource = "test.example/volume"
	s, n := sessionOf(t, "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\n"+
		"resources: [{name: "+resource+", scope: volume, test: {names: [gold]}}]\n")
	s.startLeaving(errLeaving)

	for request, want := range map[string]error{"/data=gold": errLeaving, "": nil} {
		p := &api.PodSandbox{Id: "s", Uid: "u", Annotations: map[string]string{classes.VolumeKeyPrefix + "main": request}}
		_, _, err := s.CreateContainer(t.Context(), p, &api.Container{Id: "c", Name: "main", PodSandboxId: "s"})
		if !errors.Is(err, want) || nodetest.InUse(n.Status(), resource, "gold") != 0 {
			t.Errorf("request %q: the error is %v, and %d slots are in use", request, err, nodetest.InUse(n.Status(), resource, "gold"))
		}
	}
}

func TestAHookHas60PercentOfTheRuntimesRequestTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0:                      1200 * time.Millisecond, // runtimes with an NRI before 0.8 report no timeout
		400 * time.Millisecond: 240 * time.Millisecond,
		2 * time.Second:        1200 * time.Millisecond,
		10 * time.Second:       6 * time.Second,
	} {
		if got := (&session{stub: runtimeSide{timeout: timeout}}).deadline(); got != want {
			t.Errorf("with a timeout of %s a hook has %s, want %s", timeout, got, want)
		}
	}
}
