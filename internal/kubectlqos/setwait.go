// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// pollInterval is the time between two polls of the pod and its node.
const pollInterval = 500 * time.Millisecond

// errPodGone is the error for a pod that ends while the command waits for the change of its class.
var errPodGone = errors.New("the pod ended before its class was changed")

type outcome struct {
	done bool
	// refused is the reason why the node refuses the change.
	refused string
	// stale means that the refusal may be a refusal of an earlier change.
	stale bool
}

// await waits until the change is made or refused.
func (o *setCommand) await(ctx context.Context, api *clients, plan *settingPlan) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()

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
			return o.refusedError(plan, last)
		}

		select {
		case <-ctx.Done():
			return o.lateError(ctx, plan, last, failed)
		case <-ticker.C:
		}
	}
}

// over reports whether the time is up. It also checks the deadline, because a client returns before its deadline if the
// client cannot meet it.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// look gets the pod, and stores its node in the plan.
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

// judge compares the state that the node reports with the plan.
func (o *setCommand) judge(plan *settingPlan, pod *corev1.Pod) outcome {
	v := newPodView(pod, plan.node, offersOf(plan.node), o.now())
	pending := slices.DeleteFunc(slices.Clone(plan.targets), func(t target) bool {
		c, ok := containerNamed(pod, t.container)
		has, is := v.effective(c, t.resource, t.class)
		return !ok || is == inClass && has.class == t.class // containers that are gone have no class
	})
	if len(pending) == 0 {
		return outcome{done: true}
	}

	condition, before := assignedCondition(pod), assignedCondition(plan.pod)
	if condition == nil || condition.Reason != nodeqosv1alpha1.ReasonChangeRefused {
		return outcome{}
	}
	stale := !plan.unchanged() && before != nil && before.Message == condition.Message
	for _, t := range plan.targets {
		if _, message := refusalOf(pod, t.container); message != "" {
			return outcome{refused: message, stale: stale}
		}
	}
	return outcome{}
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

func (o *setCommand) refusedError(plan *settingPlan, last outcome) error {
	return fmt.Errorf("%s refused: %s; the annotation %s still requests it, and the node retries the change when it becomes possible",
		plan.subject(o.container), strings.TrimSuffix(last.refused, ";"), plan.key)
}

func (o *setCommand) lateError(ctx context.Context, plan *settingPlan, last outcome, failed error) error {
	set := fmt.Sprintf("%s %s", plan.subject(o.container), plan.annotation())
	switch _, notReady := notCurrent(plan.node, o.now()); {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s; interrupted before the result was known", set)
	case last.refused != "":
		return o.refusedError(plan, last)
	case failed != nil:
		return fmt.Errorf("%s; the result is unknown: %w", set, failed)
	case notReady != "":
		return fmt.Errorf("%s; nothing changed within %s, because %s", set, o.timeout, notReady)
	}

	return fmt.Errorf("%s; nothing changed within %s: check that qos-kubelet-shim of %s has --follow-annotations, and see kubectl qos pods %s",
		set, o.timeout, plan.node.Name, plan.pod.Name)
}
