// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	nriSocket = "/run/nri/nri.sock"
	image     = "localhost/workload:1"
)

// containerRuntime describes how to run a container runtime, and the differences between runtimes that tests see.
type containerRuntime struct {
	name    string
	version string // how its version begins
	nri     string // how the version of its NRI begins
	older   bool   // only the core cases run on it
	// leavesRefused is true if a pod that a plugin has refused keeps a process, and if the runtime lists the pod after a
	// restart.
	leavesRefused bool
	socket        string
	files         map[string]string // its configuration, by path
	command       []string          // starts it
	importImage   []string          // imports the tests' image while the runtime runs
	cgroup        string            // format of the name of a container's cgroup, with the container's ID
	scope         string            // the same for the systemd cgroup driver
	// What the runtime writes before the error of a plugin that refuses a container, or a pod.
	containerRefused, podRefused string
	// The beginnings of the lines that "qos-nri-plugin check" prints about the runtime. VERSION stands for the version that
	// the runtime reports.
	findings []string
}

// runtimeHere returns the container runtime of this machine, which QOS_RUNTIME names.
func runtimeHere(t *testing.T) *containerRuntime {
	all := map[string]func() *containerRuntime{
		"":               func() *containerRuntime { return containerdRuntime("2.4.", "v0.12.") },
		"containerd-2.3": func() *containerRuntime { return olderRuntime(containerdRuntime("2.3.", "v0.12.")) },
		"containerd-2.2": func() *containerRuntime {
			r := olderRuntime(containerdRuntime("2.2.", "v0.11."))
			r.leavesRefused = true
			return r
		},
		"cri-o": crioRuntime,
	}

	runtime, known := all[os.Getenv("QOS_RUNTIME")]
	if !known {
		t.Fatalf("QOS_RUNTIME is %q, want one of %q", os.Getenv("QOS_RUNTIME"), slices.Sorted(maps.Keys(all)))
	}

	return runtime()
}

// configure writes the runtime's configuration, in which a text is replaced if it is not empty.
func (r *containerRuntime) configure(t *testing.T, text, replacement string) {
	t.Helper()
	for path, content := range r.files {
		if text != "" {
			content = strings.ReplaceAll(content, text, replacement)
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		mustWrite(t, path, content)
	}
}

// cgroupOf returns the cgroup of a container in a pod's cgroup.
func (r *containerRuntime) cgroupOf(pod, id string) string {
	name := r.cgroup
	if bySystemd() {
		name = r.scope
	}
	return filepath.Join(pod, fmt.Sprintf(name, id))
}

// startRuntime starts the runtime and waits until it serves the CRI.
func (n *node) startRuntime(t testing.TB) {
	t.Helper()
	n.launchRuntime(t)
	n.waitRuntime(t)
}

func (n *node) launchRuntime(t testing.TB) {
	t.Helper()
	n.runtimeProcess = start(t, n.kind.command[0], n.kind.command[1:]...)
}

func (n *node) waitRuntime(t testing.TB) {
	t.Helper()
	eventually(t, n.kind.name+" serves", func() error {
		if err := n.runtimeProcess.alive(); err != nil {
			t.Fatal(err)
		}
		_, err := n.runtime.Version(requestContext(t), &cri.VersionRequest{})
		return err
	})
}

// stopRuntime ends the runtime as systemd would; the containers continue to run.
func (n *node) stopRuntime(t testing.TB) {
	t.Helper()
	n.runtimeProcess.end(t, syscall.SIGTERM)
}

// importImage imports the tests' image, and waits until the CRI has it. In containerd, this takes a moment, because the
// CRI plugin learns of images by events.
func (n *node) importImage(t *testing.T, images cri.ImageServiceClient) {
	t.Helper()
	_, err := output(n.kind.importImage[0], n.kind.importImage[1:]...)
	must(t, err)
	eventually(t, "the CRI has the image", func() error {
		found, err := images.ImageStatus(requestContext(t), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
		if err == nil && found.GetImage() == nil {
			err = errors.New("the image does not exist yet")
		}
		return err
	})
}

func olderRuntime(r *containerRuntime) *containerRuntime {
	r.older = true
	after := slices.Index(r.findings, "runtime: ok: NRI is on: /run/nri/nri.sock answers") + 1
	r.findings = slices.Insert(r.findings, after, "runtime: warning: containerd VERSION can hang when an NRI plugin requests an update of a container")
	return r
}

// reportsVersions checks the versions of the runtime and of its NRI, as the plugin reports them.
func reportsVersions(t *testing.T, n *node) {
	got := n.status(t).GetRuntime()
	t.Logf("%s %s, NRI %q", got.GetName(), got.GetVersion(), got.GetNriVersion())
	if version := strings.TrimPrefix(got.GetVersion(), "v"); got.GetName() != n.kind.name || !strings.HasPrefix(version, n.kind.version) {
		t.Errorf("the runtime is reported as %s %s, want %s %s", got.GetName(), got.GetVersion(), n.kind.name, n.kind.version)
	}
	if nri := got.GetNriVersion(); !strings.HasPrefix(nri, n.kind.nri) {
		t.Errorf("NRI is reported with version %q, want %q", nri, n.kind.nri)
	}
}

// containerdRuntime returns containerd with runc and, on machines that have it, crun. `version` is the beginning of the version
// of containerd, and `nri` that of its NRI.
func containerdRuntime(version, nri string) *containerRuntime {
	const socket, config = "/run/containerd/containerd.sock", "/etc/containerd/config.toml"
	content := fmt.Sprintf(containerdConfig, bySystemd())
	if hasCrun() {
		content += fmt.Sprintf(crunHandler, crunProgram, bySystemd())
	}

	return &containerRuntime{
		name:             "containerd",
		version:          version,
		nri:              nri,
		socket:           socket,
		files:            map[string]string{config: content},
		command:          []string{"containerd", "--config", config},
		importImage:      []string{"ctr", "-a", socket, "-n", "k8s.io", "images", "import", "/share/image.tar"},
		cgroup:           "%s",
		scope:            "cri-containerd-%s.scope",
		containerRefused: "failed to create containerd container: failed to get NRI adjustment for container: rpc error: code = Unknown desc = ",
		podRefused:       "NRI RunPodSandbox failed: rpc error: code = Unknown desc = ",
		findings: []string{
			"runtime: ok: the runtime is containerd VERSION",
			"runtime: ok: NRI of containerd VERSION can set RDT groups",
			"runtime: ok: the OCI runtime runc 1.",
			"runtime: ok: NRI is on: /run/nri/nri.sock answers",
			"runtime: ok: containerd has no RDT or block I/O configuration of its own in /etc/containerd/config.toml",
			"runtime: warning: NRI's default validator seems to be off in containerd",
			"runtime: warning: containerd refuses pods with rdt.resources.beta.kubernetes.io annotations",
			"runtime: warning: containerd refuses pods with blockio.resources.beta.kubernetes.io annotations",
		},
	}
}

const containerdConfig = `
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "localhost/workload:1"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
# Once a second, as by default, took more than half of the emulated CPU.
stats_collect_period = "1m"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
options.SystemdCgroup = %t
[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "/run/nri/nri.sock"
# The emulated machine is slow; what comes too late would go on without the plugin.
plugin_registration_timeout = "60s"
plugin_request_timeout = "60s"
`
