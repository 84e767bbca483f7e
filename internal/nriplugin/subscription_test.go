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

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const (
	// ofContainers lists the hooks that classes of containers need, and ofBoth those that classes of containers and
	// pods need. NRI prints them in this form.
	ofContainers = "StopPodSandbox,RemovePodSandbox,CreateContainer,StartContainer,UpdateContainer,PostUpdateContainer,StopContainer,RemoveContainer,ValidateContainerAdjustment"
	ofBoth       = "RunPodSandbox," + ofContainers

	podScope = files + "- {name: test.example/net, scope: pod, test: {names: [high]}}\n"
)

// subscriptions records the subscribed hooks of each registration.
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

func TestThePluginSubscribesToTheHooksOfPodsOnlyIfItNeedsThem(t *testing.T) {
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

	// While a pod has a class of the removed resource, the plugin stays subscribed to the hooks of pods, because these
	// hooks release the class.
	r.reconfigure(t, files)
	r.restartRuntime(t)
	hooks.check(t, ofContainers, ofBoth, ofBoth)

	// without such a pod, it leaves them
	must(t, r.RemovePod(t.Context(), id))

	r.reconfigure(t, files)
	r.wait(t, 4)
	hooks.check(t, ofContainers, ofBoth, ofBoth, ofContainers)
}

// TestOldRuntimesAreNotAskedToValidate simulates containerd 2.1, which has NRI 0.8. Validation needs NRI 0.10, which
// containerd 2.2 has.
func TestOldRuntimesAreNotAskedToValidate(t *testing.T) {
	for runtime, want := range map[string]string{
		"v2.1.0": strings.TrimSuffix(ofContainers, ",ValidateContainerAdjustment"),
		"v2.2.0": ofContainers,
	} {
		var hooks subscriptions
		newRigOn(t, nriruntime.Options{Name: "containerd", Version: runtime, NRI: []adaptation.Option{hooks.option()}})
		hooks.check(t, want)
	}
}
