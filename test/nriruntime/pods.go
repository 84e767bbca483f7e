// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/containerd/nri/pkg/api"
)

// PodConfig is the kubelet's configuration of a pod.
type PodConfig struct {
	Name string
	// Namespace is "default" unless set.
	Namespace string
	// UID is generated unless set. NoUID leaves it out, as for a pod that no kubelet has created.
	UID                 string
	NoUID               bool
	Labels, Annotations map[string]string
	// RuntimeHandler is the handler of the pod's RuntimeClass.
	RuntimeHandler string
	// CgroupParent is the pod's parent cgroup. The default is the parent of a Guaranteed pod.
	CgroupParent string
}

type pod struct {
	id     string
	config PodConfig
	// pid is the process ID that is reported for the sandbox until it is stopped. No such process exists.
	pid     uint32
	stopped atomic.Bool
}

// RunPod makes a pod's cgroup and sandbox and returns the sandbox's ID.
func (r *Runtime) RunPod(ctx context.Context, config PodConfig) (id string, err error) {
	p := r.newPod(config)
	if err := r.oci.MakePodCgroup(p.config.CgroupParent); err != nil {
		return "", fmt.Errorf("make cgroup of pod %s/%s: %w", p.config.Namespace, p.config.Name, err)
	}
	defer r.bridge.blockSync()()
	if err := r.bridge.runPod(ctx, p.nri()); err != nil {
		r.logFailed(ctx, "stop of pod", r.bridge.stopPod(ctx, p.nri()))
		r.logFailed(ctx, "removal of pod", r.bridge.removePod(ctx, p.nri()))
		return "", errors.Join(fmt.Errorf("NRI RunPodSandbox failed: %w", err), r.oci.RemovePodCgroup(p.config.CgroupParent))
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = append(r.pods, p)
	return p.id, nil
}

// StopPod ends the pod's containers, then stops the pod. The hooks of the containers may come after the hook of the
// pod.
func (r *Runtime) StopPod(ctx context.Context, id string) error {
	p, err := r.pod(id)
	if err != nil {
		return err
	}
	for _, c := range r.containersOf(id) {
		if _, err := r.Exit(ctx, c); err != nil && !errors.Is(err, ErrState) && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	defer r.bridge.blockSync()()
	p.stopped.Store(true)
	r.logFailed(ctx, "stop of pod", r.bridge.stopPod(ctx, p.nri()))
	return nil
}

// RemovePod stops the pod, and then removes its containers, the pod and its cgroup.
func (r *Runtime) RemovePod(ctx context.Context, id string) error {
	if err := r.StopPod(ctx, id); err != nil {
		return err
	}

	for _, c := range r.containersOf(id) {
		if err := r.RemoveContainer(ctx, c); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	defer r.bridge.blockSync()()
	p, err := r.pod(id)
	if err != nil {
		return err
	}

	r.logFailed(ctx, "removal of pod", r.bridge.removePod(ctx, p.nri()))
	r.mu.Lock()
	r.pods = slices.DeleteFunc(r.pods, func(p *pod) bool { return p.id == id })
	r.mu.Unlock()
	return r.oci.RemovePodCgroup(p.config.CgroupParent)
}

// logFailed logs the error of a hook whose failure does not make the operation fail.
func (r *Runtime) logFailed(ctx context.Context, what string, err error) {
	if err != nil {
		slog.WarnContext(ctx, "hook failed", "after", what, "error", err)
	}
}

func (r *Runtime) newPod(config PodConfig) *pod {
	p := &pod{id: r.newID("pod"), config: config, pid: 1}
	if r.options.CRIO {
		p.pid = 0
	}

	if p.config.Namespace == "" {
		p.config.Namespace = "default"
	}

	if p.config.UID == "" {
		h := p.id
		p.config.UID = fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:32])
	}

	if p.config.CgroupParent == "" {
		p.config.CgroupParent = cgroupParent(p.config.UID, r.options.SystemdCgroups)
	}

	if config.NoUID {
		p.config.UID = ""
	}

	return p
}

// newID returns an ID in containerd's format. The IDs are not random: every run of a test gets the same ones.
func (r *Runtime) newID(kind string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	sum := sha256.Sum256([]byte(kind + strconv.Itoa(r.made)))
	return hex.EncodeToString(sum[:])
}

func (r *Runtime) pod(id string) (*pod, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.pods, func(p *pod) bool { return p.id == id })
	if i < 0 {
		return nil, fmt.Errorf("pod sandbox %q: %w", id, ErrNotFound)
	}
	return r.pods[i], nil
}

// nri returns the pod as plugins see it. A pod never changes, so nri needs no lock.
func (p *pod) nri() *api.PodSandbox {
	annotations := maps.Clone(p.config.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}

	annotations["io.kubernetes.cri.sandbox-name"] = p.config.Name
	annotations["io.kubernetes.cri.sandbox-namespace"] = p.config.Namespace
	annotations["io.kubernetes.cri.sandbox-uid"] = p.config.UID
	var pid uint32
	if !p.stopped.Load() {
		pid = p.pid
	}

	return &api.PodSandbox{
		Id:             p.id,
		Pid:            pid,
		Name:           p.config.Name,
		Uid:            p.config.UID,
		Namespace:      p.config.Namespace,
		Labels:         maps.Clone(p.config.Labels),
		Annotations:    annotations,
		RuntimeHandler: p.config.RuntimeHandler,
		Linux: &api.LinuxPodSandbox{
			CgroupParent: p.config.CgroupParent,
			CgroupsPath:  cgroupsPath(p.config.CgroupParent, p.id),
		},
	}
}
