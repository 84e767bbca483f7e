// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// lookInterval is between two looks at the pod while its change is waited for.
const lookInterval = 500 * time.Millisecond

// outcome is what came of a change.
type outcome struct {
	done bool
	// refused is why the node refuses it.
	refused string
	// stale says that the refusal may be that of an earlier change.
	stale bool
}

// await looks at pod and node until the targets of a plan are reached, or refused, and says so.
func (o *setCommand) await(ctx context.Context, api *clients, plan *settingPlan) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	var last outcome
	failed := fmt.Errorf("the API server gave no answer within %s", o.timeout)
	for {
		pod, node, err := o.look(ctx, api, plan)
		switch {
		case err == nil:
			last, failed = o.judge(plan, pod, node), nil
		case errors.Is(err, errPodGone) || !over(ctx):
			failed = err
		}
		switch {
		case errors.Is(failed, errPodGone):
			return failed
		case failed == nil && last.done:
			o.sayDone(plan)
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

// over says whether the time is up: a look that fails then was cut off, and what is known stays what it was. The clock is asked, too,
// since clients give up by it, and the context's own timer may be a moment late.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// errPodGone ends the wait for a pod that is not there any more.
var errPodGone = errors.New("it ended before its class was changed")

func (o *setCommand) look(
	ctx context.Context, api *clients, plan *settingPlan,
) (*corev1.Pod, *nodeqosv1alpha1.NodeQOSResources, error) {
	pod, err := api.core.CoreV1().Pods(plan.pod.Namespace).Get(ctx, plan.pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && (pod.UID != plan.pod.UID || finished(pod)):
		return nil, nil, fmt.Errorf("pod/%s: %w", plan.pod.Name, errPodGone)
	case err != nil:
		return nil, nil, explain(err)
	}
	node, err := api.nodeOf(ctx, pod)
	if err != nil {
		return nil, nil, err
	}
	if node != nil {
		plan.node = node
	}
	return pod, plan.node, nil
}

// judge says how far a plan has come.
func (o *setCommand) judge(plan *settingPlan, pod *corev1.Pod, node *nodeqosv1alpha1.NodeQOSResources) outcome {
	v := &podView{pod: pod, node: node, offers: offersOf(node), now: o.now()}
	v.catalog = classes.NewCatalog(v.offers)
	done := true
	for _, t := range plan.targets {
		c, ok := containerNamed(pod, t.container)
		if !ok {
			continue
		}
		has, is := v.effective(c, t.resource, t.class)
		done = done && is == inClass && has.class == t.class
	}
	if done {
		return outcome{done: true}
	}
	condition := assignedCondition(pod)
	if condition == nil || condition.Reason != nodeqosv1alpha1.ReasonChangeRefused {
		return outcome{}
	}
	for _, t := range plan.targets {
		if _, line := refusalOf(pod, t.container); line != "" {
			before := assignedCondition(plan.pod)
			return outcome{refused: line, stale: !plan.unchanged() && before != nil && before.Message == condition.Message}
		}
	}
	return outcome{}
}

// containerNamed finds a container; without a name, the pod itself.
func containerNamed(pod *corev1.Pod, name string) (containerView, bool) {
	if name == "" {
		return containerView{}, true
	}
	for _, c := range containersOf(pod) {
		if c.name == name {
			return c, true
		}
	}
	return containerView{}, false
}

func (o *setCommand) sayDone(plan *settingPlan) {
	if len(plan.targets) == 0 {
		o.say("%s %s; no container that runs is concerned\n", plan.subject(o.container), plan.annotation())
	}
	for _, t := range plan.targets {
		what := "is " + className(t.class) + " now"
		switch {
		case t.known && t.before.class == t.class:
			what = "stays " + className(t.class)
		case t.known:
			what = className(t.before.class) + " -> " + className(t.class)
		}
		o.say("%s %s %s\n", plan.subject(t.container), t.resource, what)
	}
}

func (o *setCommand) refusedError(plan *settingPlan, last outcome) error {
	return fmt.Errorf("%s refused: %s; the annotation %s still asks for it, and it is tried again when it may be possible",
		plan.subject(o.container), strings.TrimSuffix(last.refused, ";"), plan.key)
}

// lateError says what to look at when nothing was heard.
func (o *setCommand) lateError(ctx context.Context, plan *settingPlan, last outcome, failed error) error {
	set := fmt.Sprintf("%s %s", plan.subject(o.container), plan.annotation())
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s; interrupted before anything was heard of it", set)
	}
	if last.refused != "" {
		return o.refusedError(plan, last)
	}
	if failed != nil {
		return fmt.Errorf("%s; what came of it is not known: %w", set, failed)
	}
	if text := notReadySince(plan.node); text != "" {
		return fmt.Errorf("%s; nothing changed within %s, as %s", set, o.timeout, text)
	}
	return fmt.Errorf("%s; nothing changed within %s: does qos-kubelet-shim of %s have --follow-annotations? see kubectl qos pods %s",
		set, o.timeout, plan.node.Name, plan.pod.Name)
}
