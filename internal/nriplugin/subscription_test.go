// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const (
	// ofContainers and ofPods are the hooks that classes of each scope need, as NRI prints them.
	ofContainers = "StopPodSandbox,RemovePodSandbox,CreateContainer,StartContainer,StopContainer,RemoveContainer,ValidateContainerAdjustment"
	ofBoth       = "RunPodSandbox," + ofContainers

	podScope = files + "- {name: test.example/net, scope: pod, test: {names: [high]}}\n"
)

// subscriptions are the subscribed hooks of each registration.
type subscriptions struct {
	mu    sync.Mutex // guards hooks
	hooks []string
}

func (s *subscriptions) option() adaptation.Option {
	return adaptation.WithTTRPCOptions([]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(s.intercept)}, nil)
}

// intercept reads the response to Configure on its way from the plugin to the runtime.
func (s *subscriptions) intercept(
	ctx context.Context, request *ttrpc.Request, response *ttrpc.Response, info *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker,
) error {
	err := invoke(ctx, request, response)
	if err != nil || !strings.HasSuffix(info.FullMethod, "/Configure") {
		return err
	}
	var configured api.ConfigureResponse
	if err := configured.UnmarshalVT(response.Payload); err != nil {
		return err
	}
	mask := api.EventMask(configured.GetEvents())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, mask.PrettyString())
	return nil
}

func (s *subscriptions) check(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.hooks); diff != "" {
		t.Errorf("subscribed to (-want +got):\n%s", diff)
	}
}

func (r *rig) reconfigure(t *testing.T, text string) {
	t.Helper()
	configure(t, r.node, kinds(r.backend), text)
	r.plugin.Refresh()
}

func TestHooksAreSubscribedAsClassFilesNeedThem(t *testing.T) {
	var hooks subscriptions
	r := newRig(t, hooks.option())
	r.pod(t, "before", "")
	hooks.check(t, ofContainers)

	r.reconfigure(t, podScope)
	r.wait(t, 2)
	hooks.check(t, ofContainers, ofBoth)
	id := r.pod(t, "after", "test.example/net=high")
	if got := r.backend.Enforced()[id]; got != "high" {
		t.Errorf("the pod is in class %q", got)
	}

	// While a pod has a class of the removed resource, the hooks of pods stay subscribed: they release it.
	r.reconfigure(t, files)
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	r.wait(t, 3)
	hooks.check(t, ofContainers, ofBoth, ofBoth)

	if err := r.RemovePod(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	r.reconfigure(t, files)
	r.wait(t, 4)
	hooks.check(t, ofContainers, ofBoth, ofBoth, ofContainers)
}

// TestOldRuntimesAreNotAskedToValidate has containerd 2.1 with NRI 0.8. Validation came with NRI 0.10, in containerd 2.2.
func TestOldRuntimesAreNotAskedToValidate(t *testing.T) {
	for runtime, want := range map[string]string{
		"v2.1.0": strings.TrimSuffix(ofContainers, ",ValidateContainerAdjustment"),
		"v2.2.0": ofContainers,
	} {
		var hooks subscriptions
		r := &rig{Runtime: newRuntime(t, nriruntime.Options{Name: "containerd", Version: runtime, NRI: []adaptation.Option{hooks.option()}})}
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Stop)
		startPlugin(t, newNode(t, nodetest.NewBackend()), r.Socket())
		r.wait(t, 1)
		hooks.check(t, want)
	}
}
