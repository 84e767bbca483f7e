// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/runtimesetup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/kubeletdir"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

var errAborted = errors.New("the runtime closed the connection, or did not answer, before the plugin was configured")

// session is one connection to the runtime. It handles the hooks that the runtime calls over this connection.
type session struct {
	plugin *Plugin
	stub   stub.Stub
	// configured is set by the first call of Configure. Either the runtime calls Configure, or register calls it after
	// the runtime has died. A second call fails.
	configured atomic.Bool
	// registered is closed when RegisterPlugin has succeeded. The stub then waits for the runtime to call Configure.
	registered chan struct{}
	once       sync.Once
	unanswered unanswered
	// updating is a semaphore that allows one call to the runtime at a time.
	updating *semaphore.Weighted
	// events are the hooks to which the session is subscribed.
	events api.EventMask
	// decodes lists, for each request, the fields that the session decodes.
	decodes map[protoreflect.FullName]fieldNumbers
	// synchronized receives a value after each call of Synchronize.
	synchronized chan struct{}
	listing      listing
	neighbours   neighbours
	// leaving is a context that ends when the session begins to leave the runtime. Hooks then stop waiting for the kernel.
	leaving      context.Context
	startLeaving context.CancelCauseFunc
}

func newSession(p *Plugin) *session {
	s := &session{
		plugin: p, registered: make(chan struct{}), updating: semaphore.NewWeighted(1),
		decodes: decodedFields(), synchronized: make(chan struct{}, 1), neighbours: neighbours{creations: map[string]creation{}},
	}
	s.leaving, s.startLeaving = context.WithCancelCause(context.Background())
	return s
}

// Configure is called by the runtime once, after the registration.
func (s *session) Configure(_ context.Context, _, name, version string) (api.EventMask, error) {
	if again := s.configured.Swap(true); again {
		return 0, errAborted
	}

	nri := s.stub.RuntimeNRIVersion()
	s.plugin.node.Connected(s, state.RuntimeInfo{Name: name, Version: version, NRIVersion: nri, NoUpdates: runtimesetup.NoUpdates(name, version, nri)})
	s.events = s.subscription()
	return s.events, nil
}

// Synchronize is called by the runtime once, with the pods and containers that already exist.
func (s *session) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer s.observe("Synchronize", nil, nil, time.Now(), nil)
	byID := make(map[string]*api.PodSandbox, len(pods))
	sandboxes := make([]classes.Holder, 0, len(pods))
	for _, p := range pods {
		byID[p.GetId()] = p
		sandboxes = append(sandboxes, podOf(p))
	}

	slices.SortStableFunc(containers, func(a, b *api.Container) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	existing := make([]state.Existing, 0, len(containers))
	for _, c := range containers {
		pod, ok := byID[c.GetPodSandboxId()]
		switch {
		case c.GetState() == api.ContainerState_CONTAINER_STOPPED:
		case !ok:
			s.plugin.options.Log.Warn("the runtime lists a container without its pod; the container's classes are unknown", "container", c.GetId())
		default:
			existing = append(existing, existingOf(pod, c))
		}
	}

	s.plugin.node.Synchronize(sandboxes, existing)
	if ctx.Err() == nil {
		s.listing.accept()
	}
	select {
	case s.synchronized <- struct{}{}:
	default:
	}
	return nil, nil
}

// CreateContainer is called before a container is created.
func (s *session) CreateContainer(
	_ context.Context, p *api.PodSandbox, c *api.Container,
) (adjust *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer func(begin time.Time) { s.observe("CreateContainer", p, c, begin, err) }(time.Now())
	h := containerOf(p, c)
	h.Spec.Settings = described(c) // only a creation needs them
	s.plugin.node.AdoptPod(podOf(p))
	if err := cmp.Or(h.CheckNew(state.RecordAnnotation, originalsAnnotation), h.CheckDevices(c.GetEnv())); err != nil {
		return nil, nil, s.plugin.node.Refuse(h, err)
	}
	adjustment, assignments, err := s.plugin.node.CreateContainer(h)
	if err != nil {
		return nil, nil, err
	}
	adjust, err = s.adjustmentOf(h, adjustment, assignments)
	if s.leaving.Err() != nil && (adjust != nil || requestsVolumes(h)) {
		err = fmt.Errorf("%s: %w", h, errLeaving) // the plugin disconnects before the runtime would call StartContainer
	}
	if err != nil {
		s.plugin.node.Stop(c.GetId())
		return nil, nil, err
	}
	s.created(h, adjustment)
	return adjust, nil, nil
}

func requestsVolumes(h classes.Holder) bool {
	volumes, _ := classes.Volumes(h)
	return len(volumes) > 0
}

// StartContainer is called when the container's first process exists, but has not executed its first instruction.
func (s *session) StartContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) (err error) {
	defer func(begin time.Time) { s.observe("StartContainer", p, c, begin, err) }(time.Now())
	h := containerOf(p, c)
	h.Spec.Settings = described(c) // for a container that is not known yet
	enforce, err := s.plugin.node.StartContainer(h)
	if err == nil && enforce != nil {
		err = s.within(ctx, enforce)
	}
	if err != nil {
		s.kill(ctx, h)
	}
	return err
}

// kill ends a container whose start the plugin refuses. While the runtime waits for the hook, the container has
// executed no instruction.
func (s *session) kill(ctx context.Context, container classes.Holder) {
	ctx, cancel := context.WithTimeout(ctx, s.requestTimeout()*2/10)
	defer cancel()
	if err := s.plugin.node.Kill(ctx, container); err != nil {
		s.plugin.options.Log.Warn("cannot end a container whose start was refused; "+
			"if the runtime starts the container nevertheless, the plugin retries to move it to its class", "container", container.String(), "error", err)
	}
}

// UpdateContainer is called before the runtime changes the resources of a container. The runtime makes the update in
// the answer together with this change. The answer is nil unless the change affects values of the container's classes,
// because some runtimes lose values of the change if there is an answer.
func (s *session) UpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	defer s.observe("UpdateContainer", p, c, time.Now(), nil)
	requested := limitsOf(r)
	requested.Settings = classes.UnifiedFiles(r.GetUnified())
	var again classes.Adjustment
	err := s.within(ctx, func(ctx context.Context) (err error) {
		again, err = s.plugin.node.UpdateContainer(ctx, c.GetId(), requested, described(c))
		return err
	})
	if err != nil {
		s.plugin.options.Log.Warn("cannot prepare a container for a resize; the runtime's change may fail", "container", c.GetId(), "error", err)
	}
	if len(again) == 0 {
		return nil, nil
	}
	update := unifiedUpdate(c.GetId(), again.Unified())
	update.SetIgnoreFailure() // if another plugin sets the same file, the resize goes on, and the reconciler enforces the class again
	return []*api.ContainerUpdate{update}, nil
}

// PostUpdateContainer is called after the runtime has changed the resources of a container.
func (s *session) PostUpdateContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	defer s.observe("PostUpdateContainer", p, c, time.Now(), nil)
	if err := s.plugin.node.ContainerUpdated(c.GetId()); err != nil {
		s.plugin.options.Log.Warn("cannot save the values that the kubelet has requested", "container", c.GetId(), "error", err)
	}
	return nil
}

func unifiedUpdate(id string, unified map[string]string) *api.ContainerUpdate {
	update := &api.ContainerUpdate{}
	update.SetContainerId(id)
	for file, value := range unified {
		update.AddLinuxUnified(file, value)
	}
	return update
}

// StopContainer is called after a container has stopped.
func (s *session) StopContainer(_ context.Context, p *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	defer s.observe("StopContainer", p, c, time.Now(), nil)
	s.notCreated(c.GetId())
	s.plugin.node.Stop(c.GetId())
	return nil, nil
}

// RemoveContainer is called when a container is removed. It is also called for a container that was never started.
func (s *session) RemoveContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	defer s.observe("RemoveContainer", p, c, time.Now(), nil)
	s.notCreated(c.GetId())
	s.plugin.node.Stop(c.GetId())
	return nil
}

// RunPodSandbox is called when a pod's sandbox is about to run.
func (s *session) RunPodSandbox(ctx context.Context, p *api.PodSandbox) (err error) {
	defer func(begin time.Time) { s.observe("RunPodSandbox", p, nil, begin, err) }(time.Now())
	pod := podOf(p)
	enforce, err := s.plugin.node.RunPod(pod)
	if err != nil || enforce == nil {
		return err
	}
	err = s.within(ctx, enforce)
	if err != nil {
		s.plugin.node.StopPod(pod.ID)
	}
	return err
}

// StopPodSandbox is called after a pod's sandbox and its containers have stopped. containerd does not call it for pods that ran before
// its last restart, and does not call RemovePodSandbox for them either.
func (s *session) StopPodSandbox(_ context.Context, p *api.PodSandbox) error {
	defer s.observe("StopPodSandbox", p, nil, time.Now(), nil)
	s.plugin.node.StopPod(p.GetId())
	return nil
}

// RemovePodSandbox is called when a pod's sandbox is removed.
func (s *session) RemovePodSandbox(_ context.Context, p *api.PodSandbox) error {
	defer s.observe("RemovePodSandbox", p, nil, time.Now(), nil)
	s.plugin.node.StopPod(p.GetId())
	return nil
}

// SetUnified sets cgroup v2 files of a container through the runtime, and the runtime stores the values. It
// implements reconcile.Runtime.
func (s *session) SetUnified(ctx context.Context, id string, unified map[string]string) error {
	if err := s.update(ctx, []*api.ContainerUpdate{unifiedUpdate(id, unified)}); err != nil {
		return fmt.Errorf("update container %s through the runtime: %w", id, err)
	}
	return nil
}

// update asks the runtime to update containers, and waits for the answer until ctx ends. The runtime answers only when it calls no
// hook at the same time.
func (s *session) update(ctx context.Context, updates []*api.ContainerUpdate) error {
	// A call that the runtime does not answer blocks its goroutine until the connection ends. The session makes one
	// call at a time, so that such goroutines do not accumulate.
	if s.updating.Acquire(ctx, 1) != nil {
		return state.ErrRuntimeBusy
	}

	done := make(chan error, 1)
	go func() {
		defer s.updating.Release(1)
		failed, err := s.stub.UpdateContainers(updates)
		if err == nil && len(failed) > 0 {
			err = errors.New("the runtime could not update the container")
		}
		done <- err
	}()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return state.ErrUnanswered
	}
}

// within runs the part of a hook that waits for the kernel. It ends this part at the hook's deadline.
func (s *session) within(ctx context.Context, enforce func(context.Context) error) error {
	limit := s.deadline()
	late := fmt.Errorf("the kernel did not answer within %s: %w", limit, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()

	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	defer context.AfterFunc(s.leaving, func() { abort(errLeaving) })()
	return enforce(ctx)
}

// deadline returns how long a hook may take: 60% of the runtime's request timeout. The method `kill` may take another
// 20%. The rest is a reserve for a busy node, because the runtime disconnects a plugin that exceeds the timeout.
func (s *session) deadline() time.Duration { return s.requestTimeout() * 6 / 10 }

// requestTimeout returns how long the runtime waits for a hook or a synchronization.
func (s *session) requestTimeout() time.Duration {
	if timeout := s.stub.RequestTimeout(); timeout > 0 {
		return timeout
	}
	return defaultRequestTimeout
}

func (s *session) observe(hook string, pod *api.PodSandbox, container *api.Container, began time.Time, err error) {
	s.plugin.options.Observe(Hook{hook, pod, container, began, time.Since(began), err})
	if err != nil {
		s.plugin.options.Log.Info("hook refused a request", "hook", hook, "error", err)
	}
}

// nameOf returns a name from the runtime for use in errors, logs and lists. It does not change names that Kubernetes
// allows. On a machine without a kubelet, a name may contain any characters, and may be a megabyte long.
func nameOf(name string) string { return printable.Text(name, content.DNS1123SubdomainMaxLength) }

// podOf returns a pod as a holder. A pod that was not created by a kubelet has no UID. The sandbox ID then replaces the
// UID, because two such pods must not share the slots of one owner.
func podOf(p *api.PodSandbox) classes.Holder {
	return classes.Holder{
		ID: p.GetId(), SandboxID: p.GetId(), PodUID: cmp.Or(nameOf(p.GetUid()), p.GetId()),
		PodName: nameOf(p.GetName()), PodNamespace: nameOf(p.GetNamespace()),
		RuntimeHandler: nameOf(p.GetRuntimeHandler()), PodAnnotations: p.GetAnnotations(), CgroupsPath: p.GetLinux().GetCgroupParent(), PID: int(p.GetPid()),
		PodCgroupsPath: p.GetLinux().GetCgroupParent(), PodLabels: labelsOf(p),
	}
}

func containerOf(p *api.PodSandbox, c *api.Container) classes.Holder {
	h := podOf(p)
	h.ID, h.Container = c.GetId(), nameOf(c.GetName())
	h.ContainerAnnotations = classes.WithDevices(c.GetAnnotations(), devicesOf(c))
	h.CgroupsPath, h.PID = c.GetLinux().GetCgroupsPath(), int(c.GetPid())
	h.ImageDigest = c.GetImage().GetDigest()
	h.Spec = limitsOf(c.GetLinux().GetResources())
	if had, recorded := h.OwnAnnotation(originalsAnnotation); recorded {
		h.Spec.Originals = parseOriginals(had)
	}
	h.VolumeSources = volumeSources(h.PodUID, c)
	return h
}

// devicesOf returns the CDI devices that the kubelet has requested for a container.
func devicesOf(c *api.Container) []string {
	devices := make([]string, len(c.GetCDIDevices()))
	for i, device := range c.GetCDIDevices() {
		devices[i] = device.GetName()
	}
	return devices
}

// volumeSources returns the VolumeSources of a container. It leaves out mounts of directories that are not the pod's
// own, e.g. hostPath volumes. If several mounts have the same path, e.g. /data and /data/, it returns the last one,
// which hides the earlier ones.
func volumeSources(podUID string, c *api.Container) map[string]classes.VolumeSource {
	sources := map[string]classes.VolumeSource{}
	for _, mount := range c.GetMounts() {
		at := path.Clean(mount.GetDestination())
		delete(sources, at)
		if kubeletdir.IsVolume(mount.GetSource(), podUID) {
			sources[at] = classes.VolumeSource{Dir: mount.GetSource()}
		}
	}
	for _, device := range c.GetLinux().GetDevices() {
		if device.GetType() == "b" {
			numbers := fmt.Sprintf("%d:%d", device.GetMajor(), device.GetMinor())
			sources[path.Clean(device.GetPath())] = classes.VolumeSource{Device: numbers}
		}
	}
	if len(sources) == 0 {
		return nil // the container has no volumes
	}
	return sources
}

func existingOf(p *api.PodSandbox, c *api.Container) state.Existing {
	return state.Existing{
		Holder: containerOf(p, c), Stored: c.GetLinux().GetResources().GetUnified(),
		Started: c.GetState() != api.ContainerState_CONTAINER_CREATED,
	}
}
