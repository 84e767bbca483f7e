// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podrequests makes running pods follow their annotations. When the annotations of a pod change, the package
// requests other classes for the pod's containers.
package podrequests

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// minInterval is the minimum time between two changes of one container, no matter how fast the annotations of its pod change.
	minInterval = 5 * time.Second
	// updateTimeout is the maximum duration of one change.
	updateTimeout = 30 * time.Second
)

// Update requests other classes from the plugin. Its errors have the status codes of the node API.
type Update func(ctx context.Context, request *qosv1alpha1.UpdateContainerQOSResourcesRequest) error

// Outcome is the result of one call of Follow.
type Outcome struct {
	// Refused has one record for each refused change. The field Series of a record is the reason of the refusal, e.g.
	// ClassFull.
	Refused []podevents.Record
	// Again is the time after which Follow must be called again. 0 means that no call is needed until something changes.
	Again time.Duration
}

// Follower changes the classes of one running pod to the classes that the pod's annotations request. It does so when it
// first sees a container and after the annotations have changed, and retries changes that may succeed later. Otherwise
// it leaves the classes alone, so a later change by another client stays. A Follower is not safe for concurrent use.
type Follower struct {
	update Update
	tasks  map[string]*task // by ID of a container, or of the sandbox for the pod's own classes
}

// task is the state of the changes for one container or pod. If its annotations change, a new task replaces it.
type task struct {
	hash string // of the annotations
	// first is true if the annotations have not changed since the Follower first saw the container or sandbox.
	first bool
	// tried is true after the method `follow` has compared the annotations of this task with the container's classes.
	tried bool
	// done is true if Follow has nothing to do until the annotations change or, after a refusal, the configuration
	// changes.
	done bool
	// config is the hash of the plugin's configuration at the latest try.
	config  string
	retries wait.Backoff
	next    time.Time // the earliest time of the next request
	refused *podevents.Record
	// initial has the container's assignments at the time when its changes were first postponed. It is nil if no
	// changes are postponed.
	initial *qosv1alpha1.ContainerAssignments
}

// NewFollower makes a follower for one pod. It does no I/O.
func NewFollower(update Update) *Follower {
	return &Follower{update: update, tasks: map[string]*task{}}
}

// Follow compares the pod's annotations with the classes of the pod's running containers, and asks the plugin to change
// the classes that differ. The plugin reports the last two parameters: `offered` is the plugin's latest status, and `has` is
// the pod's latest assignments.
func (f *Follower) Follow(
	ctx context.Context, pod *corev1.Pod, offered *qosv1alpha1.StatusResponse, has *qosv1alpha1.PodAssignments,
) Outcome {
	// The classes of a static pod follow its manifest file. Annotations of its mirror pod do not change them.
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror || has == nil {
		return Outcome{}
	}
	targets := has.GetContainers()
	if len(has.GetQosResources()) > 0 { // this target has the pod's own classes and no name
		itself := &qosv1alpha1.ContainerAssignments{Id: has.GetSandboxId(), QosResources: has.GetQosResources()}
		targets = slices.Insert(slices.Clone(targets), 0, itself)
	}
	maps.DeleteFunc(f.tasks, func(id string, _ *task) bool {
		return !slices.ContainsFunc(targets, func(c *qosv1alpha1.ContainerAssignments) bool { return c.GetId() == id })
	})

	var outcome Outcome
	for _, target := range targets {
		if ctx.Err() != nil || target.GetName() != "" && !running(pod, target.GetId()) {
			continue
		}
		t := f.follow(ctx, pod, offered, target)
		if t.refused != nil {
			outcome.Refused = append(outcome.Refused, *t.refused)
		}
		if !t.done {
			outcome.Again = pause.Shortest(outcome.Again, max(time.Until(t.next), time.Millisecond))
		}
	}
	return outcome
}

// follow requests the changes for one target if they are due, and returns the target's task. A target is a container,
// or the pod itself if the target has no name.
func (f *Follower) follow(
	ctx context.Context, pod *corev1.Pod, offered *qosv1alpha1.StatusResponse, target *qosv1alpha1.ContainerAssignments,
) *task {
	t, config := f.taskOf(target.GetId(), hash(pod.Annotations, target.GetName())), offered.GetConfig().GetHash()
	if t.done && t.refused != nil && t.config != config {
		t.done, t.retries = false, newRetries() // another configuration may offer what was refused
	}
	if !t.done && (!t.tried || !time.Now().Before(t.next)) {
		t.tried, t.config = true, config
		f.try(ctx, t, Catalog(offered), pod, target)
	}
	return t
}

// taskOf returns the task of a container or sandbox. If the annotations have changed, taskOf replaces the task. The new
// task keeps the time of the next attempt, so that frequent changes of annotations cannot overload the plugin.
func (f *Follower) taskOf(id, hash string) *task {
	t := f.tasks[id]
	switch {
	case t == nil:
		t = &task{hash: hash, first: true, retries: newRetries()}
	case t.hash != hash:
		t = &task{hash: hash, retries: t.retries, next: t.next, refused: t.refused}
	}

	f.tasks[id] = t
	return t
}

// try requests the classes that a target should have and does not have.
func (f *Follower) try(
	ctx context.Context, t *task, catalog *classes.Catalog, pod *corev1.Pod, target *qosv1alpha1.ContainerAssignments,
) {
	if t.overtaken(target) {
		t.finish(nil, "")
		return
	}
	changes, err := plan(catalog, pod, target, t.first)
	if err != nil || len(changes) == 0 {
		t.finish(err, target.GetName())
		return
	}
	if time.Now().Before(t.next) {
		t.initial = target
		return
	}

	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	err = f.update(ctx, &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: podspec.UID(pod), Container: target.GetName(), QosResources: changes,
	})
	if temporary(err) {
		t.postpone(err, target)
		return
	}
	t.retries, t.next = newRetries(), time.Now().Add(minInterval)
	t.finish(err, target.GetName())
}

// overtaken reports whether another update has changed a class of the container since the first attempt of the task.
func (t *task) overtaken(target *qosv1alpha1.ContainerAssignments) bool {
	for _, before := range t.initial.GetQosResources() {
		for _, now := range target.GetQosResources() {
			if now.GetName() == before.GetName() && now.GetClass() != before.GetClass() && now.GetSource() == qosv1alpha1.Source_SOURCE_UPDATE {
				return true
			}
		}
	}
	return false
}

func (t *task) finish(err error, container string) {
	t.done, t.initial = true, nil
	if err != nil {
		t.refuse(err, container)
	} else {
		t.refused = nil
	}
}

func (t *task) postpone(err error, target *qosv1alpha1.ContainerAssignments) {
	if t.initial == nil {
		t.initial = target
	}
	if !unreachable(err) {
		t.refuse(err, target.GetName())
	}

	t.next = time.Now().Add(t.retries.Step())
}

// newRetries returns the backoff for changes that may succeed later. The first wait is 4 to 5 s. The waits double, up
// to 4 to 5 minutes.
func newRetries() wait.Backoff {
	return wait.Backoff{Duration: 4 * time.Second, Factor: 2, Jitter: 0.25, Steps: 10, Cap: 4 * time.Minute}
}

func (t *task) refuse(err error, container string) {
	now, reason := time.Now(), reasonOf(err)
	if t.refused == nil || t.refused.Series != reason {
		t.refused = &podevents.Record{Reason: podevents.ChangeRefused, Warning: true, Container: container, Series: reason, First: now}
	}
	t.refused.Count++
	t.refused.Last, t.refused.Message = now, strings.Join(strings.Fields(status.Convert(err).Message()), " ")
}

func reasonOf(err error) string {
	switch code := status.Code(err); code {
	case codes.ResourceExhausted:
		return "ClassFull"
	case codes.Unknown: // the error comes from the function `plan`, not from the plugin
		return "BadRequest"
	default:
		return code.String()
	}
}

func temporary(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented:
		return false
	}
	return true
}

// unreachable reports whether the plugin or the container could not be reached. Such an error does not mean that the request is invalid.
func unreachable(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.NotFound:
		return true
	}
	return false
}

func running(pod *corev1.Pod, id string) bool {
	is := func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && strings.HasSuffix(s.ContainerID, "://"+id)
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, is) || slices.ContainsFunc(pod.Status.InitContainerStatuses, is) ||
		slices.ContainsFunc(pod.Status.EphemeralContainerStatuses, is)
}
