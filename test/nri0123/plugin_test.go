// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nri0123_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"github.com/qos-nri/qos-nri-plugin/test/child"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
)

const classFile = `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  classes: [{name: solo, capacity: 1}, {name: heavy}]
  blockio:
    Classes:
      solo: [{Weight: "400"}]
      heavy: [{Weight: "1000"}]
`

// patience is how long tests wait for the plugin, which retries with backoff, and how long the runtime waits for a
// response of the plugin. Only a failing test waits that long.
const patience = time.Minute

func TestMain(m *testing.M) {
	adaptation.SetPluginRequestTimeout(patience)
	os.Exit(m.Run())
}

// rig is a runtime and a plugin that runs in another process than the test.
type rig struct {
	*nriruntime.Runtime
	host   *hostdir.Host
	binary string
	dir    string
}

func newRig(t *testing.T, binary string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "nri") // t.TempDir is too long for a socket's path
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	host, err := hostdir.New(t.TempDir(), hostdir.Options{})
	must(t, err)

	r := &rig{host: host, binary: binary, dir: dir}
	if r.Runtime, err = nriruntime.New(dir, nriruntime.Options{OCI: r.host}); err != nil {
		t.Fatal(err)
	}

	must(t, os.WriteFile(filepath.Join(dir, "classes.yaml"), []byte(classFile), 0o600))
	t.Cleanup(r.Stop)
	return r
}

// output collects what a process writes.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// command returns the command that runs the plugin.
func (r *rig) command(t *testing.T) *exec.Cmd {
	t.Helper()
	return child.Command(t, r.binary, "run", "--config", filepath.Join(r.dir, "classes.yaml"), "--nri-socket", r.Socket(),
		"--api-socket", filepath.Join(r.dir, "qos.sock"), "--metrics-address=", "--host-root", r.host.Root,
		"--state-dir", filepath.Join(r.dir, "state"), "--mount-resctrl=false")
}

// wait waits until plugins have been synchronized `n` times.
func (r *rig) wait(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, r.WaitSynchronized(ctx, n))
}

// runWith runs a pod with one container.
func (r *rig) runWith(t *testing.T, p nriruntime.PodConfig, c nriruntime.ContainerConfig) (pod, id string) {
	t.Helper()
	pod, err := r.RunPod(t.Context(), p)
	must(t, err)
	id, err = r.CreateContainer(t.Context(), pod, c)
	must(t, err)
	must(t, r.StartContainer(t.Context(), id))
	return pod, id
}

// run makes a pod with one container that requests a class, and starts the container.
func (r *rig) run(t *testing.T, name, class string) (string, error) {
	t.Helper()
	pod, err := r.RunPod(t.Context(), nriruntime.PodConfig{Name: name,
		Annotations: map[string]string{"container.qos.noderesource.dev/main": "blockio=" + class}})
	must(t, err)
	id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
	if err != nil {
		return "", err
	}
	return id, r.StartContainer(t.Context(), id)
}

func (r *rig) mustRun(t *testing.T, name, class string) string {
	t.Helper()
	id, err := r.run(t, name, class)
	must(t, err)
	return id
}

// mustRefuse checks that a container with this class is refused, with an error that contains all of the words.
func (r *rig) mustRefuse(t *testing.T, name, class string, words ...string) {
	t.Helper()
	_, err := r.run(t, name, class)
	if err == nil {
		t.Fatalf("class %s was given to %s", class, name)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the refusal does not name %q: %v", word, err)
		}
	}
}

// versions checks the version of NRI with which the plugin is built, and the version with which this test is built. It
// asks the go command, because test programs have no build information.
func versions(t *testing.T, binary string) {
	for want, args := range map[string][]string{
		"github.com/containerd/nri\tv0.12.5":     {"version", "-m", binary},
		"=> github.com/containerd/nri v0.12.3\n": {"list", "-m", "github.com/containerd/nri"},
	} {
		text, err := child.Command(t, "go", args...).Output()
		must(t, err)
		if !strings.Contains(string(text), want) {
			t.Errorf("go %s does not have %q but:\n%s", strings.Join(args, " "), want, text)
		}
	}
}
