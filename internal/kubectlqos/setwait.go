// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// pollInterval is the time between two polls of the pod and its node.
const pollInterval = 500 * time.Millisecond

// noticeTime is the time after which the command reports that it waits.
const noticeTime = 5 * time.Second

// takeBackTimeout is the maximum duration of the requests that restore an annotation.
const takeBackTimeout = 10 * time.Second

// errPodGone is the error for a pod that ends while the command waits for the change of its class.
var errPodGone = errors.New("the pod ended before its class was changed")

// noEffectError is the reason why a change had no effect.
type noEffectError string

func (e noEffectError) Error() string { return string(e) }

type outcome struct {
	done bool
	// refused is the reason why the node refuses the change.
	refused string
	// stale is true if the refusal may belong to an earlier change.
	stale bool
}

func (o *setCommand) await(ctx context.Context, api *clients, plan *settingPlan) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()

	began, noticed := time.Now(), false
	var last outcome
	failed := fmt.Errorf("the API server gave no answer within %s", o.timeout)
	for {
		pod, err := o.look(ctx, api, plan)
		switch {
		case errors.Is(err, errPodGone):
			return err
		case err == nil:
			last, failed = o.judge(plan, pod), nil
		case !over(ctx):
			failed = err
		}
		switch {
		case failed == nil && last.done:
			o.printDone(plan)
			return nil
		case failed == nil && last.refused != "" && !last.stale:
			return last.refusal()
		}
		if !noticed && !over(ctx) && time.Since(began) >= noticeTime {
			fmt.Fprintf(o.streams.ErrOut, "Waiting up to %s for node %s to change the class\n", o.timeout, plan.node.Name)
			noticed = true
		}

		select {
		case <-ctx.Done():
			return o.lateError(ctx, plan, last, failed)
		case <-ticker.C:
		}
	}
}

// over reports whether ctx has ended or its deadline has passed. It checks both, because a request may fail at the
// deadline shortly before ctx.Err returns an error.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// look gets the pod, and stores the pod's node in the plan.
func (o *setCommand) look(ctx context.Context, api *clients, plan *settingPlan) (*corev1.Pod, error) {
	pod, err := api.core.CoreV1().Pods(plan.pod.Namespace).Get(ctx, plan.pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && (pod.UID != plan.pod.UID || finished(pod)):
		return nil, fmt.Errorf("pod/%s: %w", plan.pod.Name, errPodGone)
	case err != nil:
		return nil, explain(err)
	}

	node, err := api.nodeOf(ctx, pod)
	if node != nil {
		plan.node = node
	}
	return pod, err
}

func (o *setCommand) judge(plan *settingPlan, pod *corev1.Pod) outcome {
	v := newPodView(pod, plan.node, offersOf(plan.node), o.now())
	pending := slices.DeleteFunc(slices.Clone(plan.targets), func(t target) bool {
		c, ok := containerNamed(pod, t.container)
		has, is := v.effective(c, t.resource, t.class)
		return !ok || is == inClass && has.class == t.class // a container that is gone needs no change
	})
	if len(pending) == 0 {
		return outcome{done: true}
	}

	var last outcome
	for _, t := range pending {
		refusal := refusalOf(plan.node, pod, containerView{name: t.container})
		if refusal == nil || refusal.Reason != nodeqosv1alpha1.ReasonChangeRefused {
			continue
		}
		last = outcome{refused: refusal.Message, stale: !plan.unchanged() && refusal.Message == t.refused}
		if !last.stale {
			break
		}
	}
	return last
}

func containerNamed(pod *corev1.Pod, name string) (containerView, bool) {
	for _, c := range append(containersOf(pod), containerView{}) {
		if c.name == name {
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
		case t.known && t.before == t.class:
			what = "stays " + className(t.class)
		case t.known:
			what = className(t.before) + " -> " + className(t.class)
		}
		o.print("%s %s %s\n", plan.subject(t.container), t.resource, what)
	}
}

func (o outcome) refusal() error {
	return noEffectError("refused: " + o.refused)
}

// lateError returns the error for a change that was neither made nor refused in time.
func (o *setCommand) lateError(ctx context.Context, plan *settingPlan, last outcome, failed error) error {
	set := fmt.Sprintf("%s %s", plan.subject(o.container), plan.annotation())
	switch _, notReady := notCurrent(plan.node, o.now()); {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s; interrupted before the result was known", set)
	case last.refused != "":
		return last.refusal()
	case failed != nil:
		return fmt.Errorf("%s; the result is unknown: %w", set, failed)
	case notReady != "":
		return noEffectError(fmt.Sprintf("no change was reported within %s, because %s", o.timeout, notReady))
	}
	return noEffectError(fmt.Sprintf("no change was reported within %s; see the log of qos-kubelet-shim on %s", o.timeout, plan.node.Name))
}

// takeBack restores the previous value of the annotation after a change that had no effect, unless another client has
// changed the annotation meanwhile. It always returns an error, which states the final value of the annotation.
func (o *setCommand) takeBack(ctx context.Context, api *clients, plan *settingPlan, why error) error {
	text := fmt.Sprintf("%s %s; the annotation %s", plan.subject(o.container), why, plan.key)
	if plan.unchanged() {
		return fmt.Errorf("%s already had this value before this command and keeps it, so the node makes the change as soon as possible", text)
	}

	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	var now string
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod, err := api.core.CoreV1().Pods(plan.pod.Namespace).Get(ctx, plan.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now = pod.Annotations[plan.key]; pod.UID != plan.pod.UID || now != plan.value {
			return nil
		}
		now = plan.had
		return o.patch(ctx, api, &settingPlan{pod: pod, key: plan.key, value: plan.had})
	})

	switch {
	case err != nil:
		return fmt.Errorf("%s could not be restored, and still requests the change: %w", text, explain(err))
	case now != plan.had:
		return fmt.Errorf("%s was changed by another client, and is left at %q", text, now)
	case now == "":
		return fmt.Errorf("%s is removed again", text)
	}
	return fmt.Errorf("%s is %q again", text, now)
}
