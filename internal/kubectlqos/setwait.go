// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
)

// pollInterval is the time between two polls of the pod and its node.
const pollInterval = 500 * time.Millisecond

// noticeTime is the time after which the command reports that it waits.
const noticeTime = 5 * time.Second

// takeBackTimeout is the maximum duration of the requests that restore an annotation.
const takeBackTimeout = 10 * time.Second

// errPodGone is the error for a pod that ends while the command waits for the change of its class.
var errPodGone = errors.New("the pod ended before its class was changed")

// await waits until the node has made the change, and prints the result. If the node refuses the change or does not make it
// in time, await restores the annotation.
func (o *setCommand) await(ctx context.Context, api *clients, plan *settingPlan) error {
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()

	notice := time.Now().Add(noticeTime)
	failed, stale := fmt.Errorf("the API server gave no answer within %s", o.timeout), ""
	for {
		done, refused, isStale, err := o.look(waiting, api, plan)
		switch {
		case errors.Is(err, errPodGone):
			return err
		case err != nil && !over(waiting):
			failed = err
		case done:
			o.printDone(plan)
			return nil
		case refused != "" && !isStale:
			return o.takeBack(ctx, api, plan, "refused: "+refused)
		case err == nil:
			failed, stale = nil, refused
		}
		if !notice.IsZero() && !over(waiting) && !time.Now().Before(notice) {
			fmt.Fprintf(o.streams.ErrOut, "Waiting up to %s for node %s to change the class\n", o.timeout, plan.node.Name)
			notice = time.Time{}
		}

		select {
		case <-ticker.C:
			continue
		case <-waiting.Done():
		}
		_, notReady := notCurrent(plan.node, o.now())
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s %s; interrupted before the result was known", plan.subject(o.container), plan.annotation())
		case stale != "":
			return o.takeBack(ctx, api, plan, "refused: "+stale)
		case failed != nil:
			return fmt.Errorf("%s %s; the result is unknown: %w", plan.subject(o.container), plan.annotation(), failed)
		case notReady != "":
			return o.takeBack(ctx, api, plan, fmt.Sprintf("no change was reported within %s, because %s", o.timeout, notReady))
		}
		return o.takeBack(ctx, api, plan, fmt.Sprintf(
			"no change was reported within %s; see the log of qos-kubelet-shim on %s", o.timeout, plan.node.Name))
	}
}

// over reports whether ctx has ended or its deadline has passed. It checks both, because a request may fail at the
// deadline shortly before ctx.Err returns an error.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// look reads the pod and its node, and compares them with the plan. `done` is true if all containers have their class.
// If the node refuses the change, `refused` is the reason. `stale` is true if the refusal may belong to an earlier
// change.
func (o *setCommand) look(ctx context.Context, api *clients, plan *settingPlan) (done bool, refused string, stale bool, err error) {
	pod, err := api.core.CoreV1().Pods(plan.pod.Namespace).Get(ctx, plan.pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && (pod.UID != plan.pod.UID || podspec.Finished(pod)):
		return false, "", false, fmt.Errorf("pod/%s: %w", plan.pod.Name, errPodGone)
	case err != nil:
		return false, "", false, explain(err)
	}
	node, err := api.findNode(ctx, pod.Spec.NodeName)
	if err != nil {
		return false, "", false, err
	}
	if node != nil {
		plan.node = node
	}

	v, done := newPodView(pod, plan.node, offersOf(plan.node), o.now()), true
	for _, t := range plan.targets {
		c, ok := containerNamed(pod, t.container)
		has, is := v.effective(c, t.resource, t.class)
		if !ok || is == inClass && has.class == t.class {
			continue // a container that is gone needs no change
		}
		done = false
		refusal := refusalOf(plan.node, pod, c)
		if refusal != nil && refusal.Reason == nodeqosv1alpha1.ReasonChangeRefused && (refused == "" || stale) {
			refused, stale = refusal.Message, !plan.unchanged() && refusal.Message == t.refused
		}
	}
	return done, refused, stale, nil
}

func containerNamed(pod *corev1.Pod, name string) (containerView, bool) {
	for _, c := range append(containersOf(pod), viewOf(pod, "", nil)) {
		if c.Container == name {
			return c, true
		}
	}
	return containerView{}, false
}

func (o *setCommand) printDone(plan *settingPlan) {
	if len(plan.targets) == 0 {
		o.print("%s %s; no running container is affected\n", plan.subject(o.container), plan.annotation())
	}

	for _, t := range plan.targets {
		what := "is " + className(t.class) + " now"
		switch {
		case t.before != nil && *t.before == t.class:
			what = "stays " + className(t.class)
		case t.before != nil:
			what = className(*t.before) + " -> " + className(t.class)
		}
		o.print("%s %s %s\n", plan.subject(t.container), t.resource, what)
	}
}

// takeBack restores the previous value of the annotation after a change that had no effect, unless another client has
// changed the annotation meanwhile. It always returns an error, which states the final value of the annotation.
func (o *setCommand) takeBack(ctx context.Context, api *clients, plan *settingPlan, why string) error {
	text := fmt.Sprintf("%s %s; the annotation %s", plan.subject(o.container), why, plan.key)
	if plan.unchanged() {
		return fmt.Errorf("%s requested the change before this command, and still does, so the node makes the change as soon as possible", text)
	}

	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	var now string
	err := o.annotate(ctx, api, func(pod *corev1.Pod) (key, value string, err error) {
		if now = pod.Annotations[plan.key]; pod.UID == plan.pod.UID && now == plan.value {
			now = plan.had
		}
		return plan.key, now, nil
	})

	switch {
	case err != nil:
		return fmt.Errorf("%s could not be restored, and still requests the change: %w", text, err)
	case now != plan.had:
		return fmt.Errorf("%s was changed by another client, and is left at %q", text, now)
	case now == "":
		return fmt.Errorf("%s is removed again", text)
	}
	return fmt.Errorf("%s is %q again", text, now)
}
