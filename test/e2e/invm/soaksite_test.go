// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/soak/steps"
)

// soakSite implements steps.Site on this VM, where the runtime and the plugin run as processes.
type soakSite struct {
	*node

	t      *testing.T
	killed bool

	mu         sync.Mutex // guards what follows
	pods       map[string]*pod
	containers map[string]*container
	attempts   uint32
}

var _ interface {
	steps.Site
	steps.Saboteur
} = (*soakSite)(nil)

func (s *soakSite) Host() invariant.FS { return hostfs.Root("/") }

func (s *soakSite) Live(ctx context.Context) (invariant.Live, error) {
	return invariant.LiveByCRI(s.runtime, s.cgroupIn)(ctx)
}

// Machine returns those properties of the machine that determine which classes the soak can use.
func (s *soakSite) Machine() steps.Machine {
	mask, err := strconv.ParseUint(strings.TrimSpace(mustRead(s.t, resctrlRoot+"/info/L3/cbm_mask")), 16, 64)
	must(s.t, err)
	m := steps.Machine{Ways: bits.OnesCount64(mask), Notices: 20 * time.Second, Weights: map[string]string{}}
	for _, line := range schemataLines(s.t, "") {
		if domains, found := strings.CutPrefix(line, "L3:"); found {
			for id := range strings.SplitSeq(domains, ";") {
				name, _, _ := strings.Cut(id, "=")
				number, err := strconv.Atoi(name)
				must(s.t, err)
				m.Domains = append(m.Domains, number)
			}
		}
	}

	for _, disk := range []string{"/dev/vda", "/dev/vdb"} {
		m.Disks = append(m.Disks, deviceNumber(s.t, disk))
	}

	if strings.Contains(mustRead(s.t, "/sys/block/vda/queue/scheduler"), "bfq") {
		m.Weights["io.bfq.weight"] = "default 400"
	}

	if _, err := os.Stat("/sys/fs/cgroup/io.cost.qos"); err == nil {
		m.Weights["io.weight"] = "default 3940" // 400 in the range 10 to 1000, mapped to the range 1 to 10000
	}

	return m
}

func (s *soakSite) RunPod(_ context.Context, wanted steps.Pod) (string, error) {
	p, err := s.makePod(s.t, podConfig(wanted.Name, wanted.Annotations))
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p.id] = p
	return p.id, nil
}

func (s *soakSite) podOf(id string) *pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[id]
}

func (s *soakSite) container(id string) *container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[id]
}

// RemovePod also removes the pod's cgroup, as the kubelet does.
func (s *soakSite) RemovePod(ctx context.Context, id string) error {
	_, err := s.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	if err == nil {
		_, err = s.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	}
	if err == nil {
		err = os.Remove(filepath.Join("/sys/fs/cgroup", s.podOf(id).cgroup()))
	}
	return err
}

func (s *soakSite) CreateContainer(_ context.Context, podID string, wanted steps.Container) (string, error) {
	s.mu.Lock()
	s.attempts++
	attempt := s.attempts
	s.mu.Unlock()
	wants := spec{name: wanted.Name, annotations: wanted.Annotations, attempt: attempt}
	if wanted.Device != "" {
		wants.devices = []string{wanted.Device}
	}

	c, err := s.podOf(podID).create(s.t, wants)
	if err != nil {
		return "", err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[c.id] = c
	return c.id, nil
}

func (s *soakSite) StartContainer(ctx context.Context, id string) error {
	_, err := s.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
	return err
}

func (s *soakSite) ExitContainer(_ context.Context, id string) error {
	processes, err := os.ReadFile(filepath.Join(s.ioCgroup(s.container(id).cgroup()), "cgroup.procs"))
	if err != nil {
		return err
	}

	for _, process := range strings.Fields(string(processes)) {
		pid, err := strconv.Atoi(process)
		if err != nil {
			return err
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}

	return nil
}

func (s *soakSite) RemoveContainer(ctx context.Context, id string) error {
	_, err := s.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
	return err
}

// Exec starts a process and does not wait for its end. The process ends with the container.
func (s *soakSite) Exec(ctx context.Context, id string) error { return s.begin(ctx, id) }

// Fork starts a process that forks.
func (s *soakSite) Fork(ctx context.Context, id string) error { return s.begin(ctx, id, "spawn", "1") }

func (s *soakSite) begin(ctx context.Context, id string, args ...string) error {
	go func() {
		_, _ = s.runtime.ExecSync(context.WithoutCancel(ctx), &cri.ExecSyncRequest{ContainerId: id, Cmd: append([]string{"/workload"}, args...)})
	}()
	return nil
}

func (s *soakSite) Resize(ctx context.Context, id string) error {
	_, err := s.runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &cri.LinuxContainerResources{CpuShares: 512},
	})
	return err
}

func (s *soakSite) RestartRuntime(context.Context) error {
	s.stopRuntime(s.t)
	s.startRuntime(s.t)
	return nil
}

func (s *soakSite) WriteClasses(text string) error {
	writeClassFile(s.t, text)
	return nil
}

func (s *soakSite) Hangup() error { return s.plugin.cmd.Process.Signal(syscall.SIGHUP) }

func (s *soakSite) StartPlugin(context.Context) error {
	s.killed = false
	s.plugin = start(s.t, "qos-nri-plugin", "run", "--nri-socket", nriSocket)
	eventually(s.t, "the plugin answers", func() error {
		_, err := s.api(s.t).Status(requestContext(s.t), &qos.StatusRequest{})
		return err
	})
	return nil
}

func (s *soakSite) StopPlugin(context.Context) error {
	s.killed = true
	s.plugin.end(s.t, syscall.SIGTERM)
	return nil
}

// KillPlugin kills the plugin at once if the parameter `at` is 0. Otherwise KillPlugin returns, and the plugin is killed
// some milliseconds later, during its work.
func (s *soakSite) KillPlugin(_ context.Context, at int) error {
	s.killed = true
	doomed := s.plugin.cmd.Process
	if at == 0 {
		s.plugin.end(s.t, syscall.SIGKILL)
		return nil
	}
	time.AfterFunc(time.Duration(at)*5*time.Millisecond, func() { _ = doomed.Kill() })
	return nil
}

func (s *soakSite) PluginRuns() (bool, error) {
	err := s.plugin.alive()
	if err != nil && s.killed {
		return false, nil
	}
	return err == nil, err
}

func (s *soakSite) API() qos.NodeQOSClient { return s.api(s.t) }

func (s *soakSite) RemoveGroup(_ context.Context, group string) error {
	return unlessGone(os.Remove(filepath.Join(resctrlRoot, group)))
}

func (s *soakSite) RewriteGroup(_ context.Context, group, schemata string) error {
	return unlessGone(os.WriteFile(filepath.Join(resctrlRoot, group, "schemata"), []byte(schemata), 0))
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *soakSite) Remount(_ context.Context, again bool) error {
	err := unix.Unmount(resctrlRoot, 0)
	if err == nil && again {
		err = unix.Mount("resctrl", resctrlRoot, "resctrl", 0, "")
	}
	return err
}

func (s *soakSite) Stray(_ context.Context, id string) error {
	processes := strings.Fields(string(readOrNothing(filepath.Join(s.ioCgroup(s.container(id).cgroup()), "cgroup.procs"))))
	if len(processes) == 0 {
		return nil
	}
	return unlessGone(os.WriteFile(filepath.Join(resctrlRoot, "tasks"), []byte(processes[0]), 0))
}

func readOrNothing(path string) []byte {
	data, _ := os.ReadFile(path)
	return data
}

func (s *soakSite) Unlimit(_ context.Context, id string) error {
	line := fmt.Sprintf("%s rbps=max wbps=max riops=max wiops=max", deviceNumber(s.t, "/dev/vda"))
	return unlessGone(os.WriteFile(filepath.Join(s.ioCgroup(s.container(id).cgroup()), "io.max"), []byte(line), 0))
}
