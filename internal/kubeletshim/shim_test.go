// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeletshim"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
	kubelettest "github.com/qos-nri/qos-nri-plugin/test/kubelet"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// rig is a node with a plugin and a kubelet, without a Kubernetes API.
type rig struct {
	kubelet *kubelettest.Kubelet
	options kubeletshim.Options
	log     lines
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "shim"))(t)

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plugin := apitest.NewNode()
	must.Do(t, plugin.Load(t.Context(), apitest.Files))

	served := must.Get(apitest.Serve(context.WithoutCancel(t.Context()), plugin, dir))(t)

	t.Cleanup(func() {
		if err := served.Stop(); err != nil {
			t.Error(err)
		}
	})

	r := &rig{kubelet: kubelettest.New(filepath.Join(dir, "kubelet")), options: kubeletshim.DefaultOptions()}
	must.Do(t, r.kubelet.Start())

	t.Cleanup(r.kubelet.Kill)
	r.options.APISocket, r.options.KubeletDir = served.Socket, r.kubelet.Root()
	r.options.NodeName, r.options.MetricsAddress = "node-1", ""
	return r
}

// run runs the shim until the test ends, and waits until the kubelet can allocate class gold.
func (r *rig) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	shim := kubeletshim.New(r.options, slog.New(slog.NewTextHandler(&r.log, nil)))
	go func() { done <- shim.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the shim ended with: %v", err)
		}
	})

	patient, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := r.kubelet.Await(patient, func() bool {
		gold := r.kubelet.Resource("qos.noderesource.dev/rdt.gold")
		return gold.Allocatable == 1
	}); err != nil {
		t.Fatalf("the kubelet never got class gold: %v", err)
	}
}

func TestDevicePluginsRunWithoutTheKubernetesAPI(t *testing.T) {
	broken := func(t *testing.T, text string) string {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}

	for _, test := range []struct {
		name       string
		kubeconfig func(t *testing.T) string
		want       string
	}{
		{"without credentials", func(*testing.T) string { return "" }, "neither --kubeconfig nor a service account"},
		{"with a file that is not there", func(*testing.T) string { return "/does/not/exist" }, "--kubeconfig /does/not/exist"},
		{"with an invalid certificate", func(t *testing.T) string {
			return broken(t, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
users: [{name: u, user: {token: t}}], clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: bm9uZQ==}}]}`)
		}, "cannot be used"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "") // as outside of a pod, where there is no service account
			r := newRig(t)
			r.options.Kubeconfig = test.kubeconfig(t)
			r.run(t) // waits until the kubelet has the device of class gold
			if logged := r.log.with("nothing is published to the Kubernetes API"); len(logged) != 1 || !strings.Contains(logged[0], test.want) {
				t.Errorf("logged %q; want one line with %q", logged, test.want)
			}
		})
	}
}

func TestAShimThatPublishesToTheAPIAloneEndsWithoutCredentials(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	r := newRig(t)
	r.options.Publish = []string{kubeletshim.NodeObject}
	err := kubeletshim.New(r.options, slog.New(slog.NewTextHandler(&r.log, nil))).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "neither --kubeconfig nor a service account") {
		t.Errorf("the shim ended with %v, want an error about missing credentials", err)
	}
}

// TestOptions changes the options of a node, and looks for the error.
func TestOptions(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*kubeletshim.Options)
		want   string // part of the error; empty if there is no error
	}{
		{"the defaults of a node are right", func(*kubeletshim.Options) {}, ""},
		{"a publication that is unknown", func(o *kubeletshim.Options) { o.Publish = []string{"nodes"} }, `--publish "nodes" is not one of device-plugin, `},
		{"nothing to publish", func(o *kubeletshim.Options) { o.Publish = nil }, "--publish is empty"},
		{"a grace shorter than a restart", func(o *kubeletshim.Options) { o.Grace = time.Millisecond }, "--grace 1ms is too short"},
		{"no name for publications that need one", func(o *kubeletshim.Options) { o.NodeName = "" }, "--node-name is required"},
		{"no name for device plugins alone", func(o *kubeletshim.Options) {
			o.NodeName, o.Publish = "", []string{kubeletshim.DevicePlugin}
		}, ""},
		{"no name, but annotations to follow", func(o *kubeletshim.Options) {
			o.NodeName, o.Publish, o.FollowAnnotations = "", []string{kubeletshim.DevicePlugin}, true
		}, "--node-name is required"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := kubeletshim.DefaultOptions()
			o.NodeName = "node-1"
			test.change(&o)
			err := o.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
