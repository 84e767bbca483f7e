// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// recordAnnotation is the container annotation in which the runtime stores the plugin's assignments.
const recordAnnotation = "assigned.qos.noderesource.dev"

// Machine reads the state of a node into a World.
type Machine struct {
	// API is the plugin's node API.
	API qosv1alpha1.NodeQOSClient
	// Host has the kernel's files. It is nil if there are none.
	Host FS
	// Kernel, if set, reads the kernel in place of Host.
	Kernel func(live Live) (Kernel, error)
	// Live returns the pods and containers of the runtime.
	Live func(context.Context) (Live, error)
	// Classes, if set, reads a fake kernel; see Kernel.Classes.
	Classes func() map[string]map[string]string
	// Kubernetes, if set, returns what the kubelet and the Kubernetes API have.
	Kubernetes func(context.Context) (*Kubernetes, error)
	// `Before` is an earlier result of ForeignOf. If it is nil, foreign files are not compared.
	Before map[string]string
	// ForeignFiles are further foreign files.
	ForeignFiles []string
	Expect       Expect
	// Settled, if set, fills in fields of a World before Wait checks it, and returns a line for each change that is still
	// under way.
	Settled func(w *World) []string
	// Ignore, if set, reports whether a violation does not count.
	Ignore func(violation string) bool
}

// Read reads API, runtime and kernel, one after another.
func (m Machine) Read(ctx context.Context) (World, error) {
	w := World{Before: m.Before, Expect: m.Expect}
	var err error
	if w.Status, err = m.API.Status(ctx, &qosv1alpha1.StatusRequest{}); err != nil {
		return w, fmt.Errorf("get the status: %w", err)
	}

	if w.Assignments, err = m.API.ListAssignments(ctx, &qosv1alpha1.ListAssignmentsRequest{}); err != nil {
		return w, fmt.Errorf("get the assignments: %w", err)
	}

	if w.Live, err = m.Live(ctx); err != nil {
		return w, fmt.Errorf("list pods and containers of the runtime: %w", err)
	}

	read := m.Kernel
	if read == nil && m.Host != nil {
		read = func(live Live) (Kernel, error) { return KernelOf(m.Host, live) }
	}

	if read != nil {
		if w.Kernel, err = read(w.Live); err != nil {
			return w, fmt.Errorf("read the kernel's state: %w", err)
		}
	}

	if m.Classes != nil {
		w.Kernel.Classes = m.Classes()
	}

	if m.Kubernetes != nil {
		if w.Kubernetes, err = m.Kubernetes(ctx); err != nil {
			return w, err
		}
	}

	if m.Before != nil {
		if w.Foreign, err = ForeignOf(m.Host, m.ForeignFiles...); err != nil {
			return w, fmt.Errorf("read foreign files: %w", err)
		}
	}

	return w, nil
}

// checkInterval is the time between two checks.
const checkInterval = 20 * time.Millisecond

// Wait checks repeatedly until there are no violations. When ctx ends, it returns the remaining violations.
func (m Machine) Wait(ctx context.Context) []string {
	again := time.NewTicker(checkInterval)
	defer again.Stop()
	var found []string
	for {
		w, err := m.Read(ctx)
		switch {
		case err == nil && !w.Assignments.GetSynchronized():
			found = []string{"the plugin is not registered with the runtime"}
		case err == nil:
			if found = m.wrong(w); len(found) == 0 {
				return nil
			}
		case len(found) == 0 || ctx.Err() == nil && status.Code(err) != codes.DeadlineExceeded: // an error at the end of ctx does not replace the violations
			found = []string{err.Error()}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return found
		}
	}
}

// wrong returns the lines of Settled and all violations.
func (m Machine) wrong(w World) []string {
	var found []string
	if m.Settled != nil {
		found = m.Settled(&w) // before Violations, because Settled fills in fields of w
	}
	found = append(found, Violations(w)...)
	if m.Ignore != nil {
		found = slices.DeleteFunc(found, m.Ignore)
	}
	return found
}

// patience is the longest time that Hold waits; only a failing test waits so long.
const patience = 3 * time.Minute

// TB is the part of testing.TB that Hold needs.
type TB interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
}

// Hold waits until there are no violations, and fails the test if some are left.
func (m Machine) Hold(t TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, violation := range m.Wait(ctx) {
		t.Errorf("%s", violation)
	}
}

// LiveIn returns the pods and containers of a runtime, for Machine.Live.
func LiveIn(r interface {
	Snapshot() ([]*api.PodSandbox, []*api.Container)
}) func(context.Context) (Live, error) {
	return func(context.Context) (Live, error) {
		pods, containers := r.Snapshot()
		return liveOf(pods, containers), nil
	}
}

func liveOf(pods []*api.PodSandbox, containers []*api.Container) Live {
	var live Live
	byID := map[string]*api.PodSandbox{}
	for _, p := range pods {
		byID[p.GetId()] = p
		live.Pods = append(live.Pods, Pod{
			UID: cmp.Or(p.GetUid(), p.GetId()), Namespace: p.GetNamespace(), Name: p.GetName(), ID: p.GetId(),
			Cgroup: nriruntime.CgroupDir(p.GetLinux().GetCgroupParent()),
		})
	}

	for _, c := range containers {
		p := byID[c.GetPodSandboxId()]
		live.Containers = append(live.Containers, Container{
			PodUID: cmp.Or(p.GetUid(), p.GetId()), PodNamespace: p.GetNamespace(), PodName: p.GetName(), Name: c.GetName(), ID: c.GetId(),
			Cgroup:   nriruntime.CgroupDir(c.GetLinux().GetCgroupsPath()),
			Started:  c.GetState() == api.ContainerState_CONTAINER_RUNNING,
			Recorded: c.GetAnnotations()[recordAnnotation] != "",
		})
	}

	return live
}
