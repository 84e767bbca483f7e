// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pod is a pod sandbox on the host's network, as the kubelet would make it.
type pod struct {
	node   *node
	id     string
	config *cri.PodSandboxConfig
}

// runPod makes a pod, which is removed at the end of the test.
func (n *node) runPod(t testing.TB, name string, annotations map[string]string) *pod {
	t.Helper()
	p, err := n.tryPod(t, name, annotations)
	must(t, err)
	return p
}

// tryPod is runPod for a pod that may be refused.
func (n *node) tryPod(t testing.TB, name string, annotations map[string]string) (*pod, error) {
	t.Helper()
	p, err := n.makePod(t, podConfig(name, annotations))
	if err == nil {
		t.Cleanup(func() { p.remove(t) })
	}
	return p, err
}

// makePod is tryPod without the cleanup.
func (n *node) makePod(t testing.TB, config *cri.PodSandboxConfig) (*pod, error) {
	t.Helper()
	p := &pod{node: n, config: config}
	must(t, os.MkdirAll(p.config.LogDirectory, 0o755))
	p.makeCgroup(t)
	response, err := n.runtime.RunPodSandbox(requestContext(t), &cri.RunPodSandboxRequest{Config: p.config, RuntimeHandler: n.handler})
	if err != nil {
		return nil, err
	}
	p.id = response.PodSandboxId
	return p, nil
}

func podConfig(name string, annotations map[string]string) *cri.PodSandboxConfig {
	uid := "uid-" + name
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: uid},
		Annotations:  annotations,
		LogDirectory: filepath.Join("/var/log/pods", uid),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    podCgroup(uid),
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces()},
		},
	}
}

// namespaces returns the namespaces of a pod and its containers: the network namespace of the machine, and a PID
// namespace for each container.
func namespaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
}

// makeCgroup makes the pod's cgroup like the kubelet, with the same controllers.
func (p *pod) makeCgroup(t testing.TB) {
	t.Helper()
	if bySystemd() {
		makeSlice(t, path.Base(p.cgroup()))
		return
	}

	roots := []string{"/sys/fs/cgroup"}
	if !p.node.cgroupV2 {
		roots = []string{"/sys/fs/cgroup/blkio", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"}
	}

	for _, root := range roots {
		must(t, os.MkdirAll(filepath.Join(root, p.cgroup()), 0o755))
	}

	if p.node.cgroupV2 {
		for _, parent := range []string{"", "kubepods", p.cgroup()} {
			mustWrite(t, filepath.Join("/sys/fs/cgroup", parent, "cgroup.subtree_control"), "+cpu +memory +io +pids")
		}
	}
}

func (p *pod) cgroup() string { return p.config.Linux.CgroupParent }

func (p *pod) name() string { return p.config.Metadata.Namespace + "/" + p.config.Metadata.Name }

// remove ends the pod with all of its containers. It may be called twice.
func (p *pod) remove(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also after the end of t, in its cleanup
	defer cancel()
	_, err := p.node.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	must(t, err)
	_, err = p.node.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
	must(t, err)
}

// spec describes a container.
type spec struct {
	name        string
	command     []string // instead of workload
	args        []string // of workload
	annotations map[string]string
	attempt     uint32   // how often it has been restarted
	devices     []string // block devices to pass through
	mounts      []*cri.Mount
	resources   *cri.LinuxContainerResources // nil: no limits
}

type container struct {
	pod *pod
	id  string
	log string
}

// run creates a container and starts it. The container is removed at the end of the test.
func (p *pod) run(t testing.TB, s spec) *container {
	t.Helper()
	c := p.admit(t, s)
	c.start(t)
	return c
}

// admit creates a container, which must not be refused, and does not start it. The container is removed at the end of
// the test.
func (p *pod) admit(t testing.TB, s spec) *container {
	t.Helper()
	c, err := p.create(t, s)
	must(t, err)
	t.Cleanup(func() { c.remove(t) })
	return c
}

func (c *container) start(t testing.TB) {
	t.Helper()
	_, err := c.pod.node.runtime.StartContainer(requestContext(t), &cri.StartContainerRequest{ContainerId: c.id})
	must(t, err)
}

// create creates a container, which may be refused.
func (p *pod) create(t testing.TB, s spec) (*container, error) {
	t.Helper()
	config := &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: s.name, Attempt: s.attempt},
		Image:       &cri.ImageSpec{Image: image, UserSpecifiedImage: image},
		Command:     s.command,
		Args:        s.args,
		Annotations: s.annotations,
		LogPath:     fmt.Sprintf("%s-%d.log", s.name, s.attempt),
		Mounts:      s.mounts,
		Linux: &cri.LinuxContainerConfig{
			Resources:       cmp.Or(s.resources, &cri.LinuxContainerResources{}),
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces()},
		},
	}

	for _, device := range s.devices {
		config.Devices = append(config.Devices, &cri.Device{ContainerPath: device, HostPath: device, Permissions: "rw"})
	}

	response, err := p.node.runtime.CreateContainer(requestContext(t), &cri.CreateContainerRequest{
		PodSandboxId: p.id, Config: config, SandboxConfig: p.config,
	})
	if err != nil {
		return nil, err
	}

	return &container{pod: p, id: response.ContainerId, log: filepath.Join(p.config.LogDirectory, config.LogPath)}, nil
}

func (c *container) cgroup() string { return c.pod.node.kind.cgroupOf(c.pod.cgroup(), c.id) }

// exec runs workload in the container and returns what it prints.
func (c *container) exec(t testing.TB, args ...string) string {
	t.Helper()
	response, err := c.pod.node.runtime.ExecSync(requestContext(t), &cri.ExecSyncRequest{
		ContainerId: c.id, Cmd: append([]string{"/workload"}, args...),
	})
	must(t, err)
	if response.ExitCode != 0 {
		t.Fatalf("workload %q: exit code %d: %s", args, response.ExitCode, response.Stderr)
	}
	return string(response.Stdout)
}

// resize changes the resources of the container as the kubelet does.
func (c *container) resize(t testing.TB, resources *cri.LinuxContainerResources) {
	t.Helper()
	_, err := c.pod.node.runtime.UpdateContainerResources(requestContext(t), &cri.UpdateContainerResourcesRequest{ContainerId: c.id, Linux: resources})
	must(t, err)
}

// stop ends the container's processes and waits for them.
func (c *container) stop(t testing.TB) {
	t.Helper()
	_, err := c.pod.node.runtime.StopContainer(requestContext(t), &cri.StopContainerRequest{ContainerId: c.id, Timeout: 0})
	must(t, err)
}

// remove ends the processes of the container, and removes it. It may be called twice.
func (c *container) remove(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also after the end of t, in its cleanup
	defer cancel()
	_, err := c.pod.node.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: c.id})
	must(t, err)
}

// printed waits until "workload show" has printed everything, and returns the output without the fields that the CRI
// log adds.
func (c *container) printed(t testing.TB) string {
	t.Helper()
	var lines []string
	eventually(t, "container prints", func() error {
		data, err := os.ReadFile(c.log)
		if err != nil {
			return err
		}

		lines = nil
		for _, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
			if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
				lines = append(lines, fields[3])
			}
		}

		last := len(lines) - 1
		if last < 0 || lines[last] != "that is all" {
			return fmt.Errorf("%s does not have all values yet: %q", c.log, lines)
		}

		lines = lines[:last]
		return nil
	})

	return strings.Join(lines, "\n")
}

// requestContext bounds one request to the runtime.
func requestContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
