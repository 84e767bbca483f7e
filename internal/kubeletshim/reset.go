// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

const (
	// resetInterval is how often AwaitReset lists the nodes.
	resetInterval = 2 * time.Second
	// ResetTimeout is the default timeout of AwaitReset. It is shorter than the default of Helm's --timeout, 5 minutes,
	// so that the reason is in the log before Helm gives up.
	ResetTimeout = 4 * time.Minute
	// rightsTimeout is how long the API server may refuse the list. A right that was just granted takes a moment to come into force.
	rightsTimeout = 30 * time.Second
	// settleTime is how long all nodes must stay reset. The plugins remove empty resctrl groups every 15 s. An uninstall
	// that ends the plugins earlier would leave behind the groups whose last threads have just moved.
	settleTime = 30 * time.Second
	// maxNamedNodes is the maximum number of nodes that a message names.
	maxNamedNodes = 10
	// maxReason is the maximum length of the reason of a node, in bytes.
	maxReason = 300
)

// AwaitReset waits until this has held for half a minute: no node offers a class of containers or pods, and no
// container or pod has a class that it got as the default class. It ignores nodes that have stopped reporting. It
// returns an error if it has no credentials or rights, after the timeout, or if ctx ends. The error names the nodes
// with their reasons.
func AwaitReset(ctx context.Context, kubeconfig, version string, timeout time.Duration, log *slog.Logger) error {
	config, err := kubeapi.Config(kubeconfig, "qos-kubelet-shim/"+version)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	return awaitReset(ctx, objects, timeout, log)
}

func awaitReset(ctx context.Context, objects dynamic.Interface, timeout time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	var reset, refused streak
	for logged := ""; ; {
		problem, err := notReset(ctx, objects, time.Now())
		if reset.lasts(err == nil && problem == "") >= settleTime {
			return nil
		}
		if refused.lasts(apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) >= rightsTimeout {
			return fmt.Errorf("%w; the permissions of this Job were removed, so helm no longer waits for it; run \"helm uninstall\" again", err)
		}

		if err != nil && ctx.Err() == nil {
			problem = err.Error()
		}
		if problem != logged && problem != "" {
			logged = problem
			log.Info("waiting until no node offers a class", "problem", problem)
		}
		if pause.For(ctx, resetInterval); ctx.Err() != nil {
			return fmt.Errorf("nodes still offer classes after %s: %s", time.Since(began).Round(time.Second), cmp.Or(logged, "no node was listed"))
		}
	}
}

// streak measures how long something has held without a break.
type streak struct{ since time.Time } // zero while it does not hold

func (s *streak) lasts(holds bool) time.Duration {
	switch {
	case !holds:
		s.since = time.Time{}
		return 0
	case s.since.IsZero():
		s.since = time.Now()
	}
	return time.Since(s.since)
}

// notReset returns the nodes that offer classes, with their reasons. It returns "" if there are none.
func notReset(ctx context.Context, objects dynamic.Interface, now time.Time) (string, error) {
	list, err := objects.Resource(nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list NodeQOSResources: %w", err)
	}

	var reasons []string
	for _, item := range list.Items {
		var node nodeqosv1alpha1.NodeQOSResources
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &node); err != nil {
			return "", fmt.Errorf("read NodeQOSResources %s: %w", item.GetName(), err)
		}
		if reason := offered(&node.Status, now); reason != "" {
			reasons = append(reasons, fmt.Sprintf("node %s %s", node.Name, printable.Text(reason, maxReason)))
		}
	}
	if more := len(reasons) - maxNamedNodes; more > 0 {
		reasons = append(reasons[:maxNamedNodes], fmt.Sprintf("and %d more nodes", more))
	}
	return strings.Join(reasons, "; "), nil
}

// offered describes what a node still offers, with the reason. It returns "" for a node that offers no class, and has
// no containers or pods that got their class as the default class. It ignores classes of volumes, because class files
// do not configure them.
func offered(status *nodeqosv1alpha1.NodeQOSResourcesStatus, now time.Time) string {
	if status.Expired(now) {
		return ""
	}
	for _, r := range slices.Concat(status.QOSResources.ContainerQOSResources, status.QOSResources.PodQOSResources) {
		for i := range r.Classes {
			if left := leftOf(&r.Classes[i]); left != "" {
				return fmt.Sprintf("%s class %s of %s%s", left, r.Classes[i].Name, r.Name, reasonOf(status))
			}
		}
	}
	return ""
}

// leftOf describes why a class is not removed yet. It returns "" for a class that was removed.
func leftOf(class *nodeqosv1alpha1.QOSResourceClassInfo) string {
	if !class.Draining {
		return "offers"
	}
	i := slices.IndexFunc(class.Holders, nodeqosv1alpha1.Holder.IsDefault)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("has pod %s/%s with the removed default", class.Holders[i].Namespace, class.Holders[i].Pod)
}

// reasonOf returns the condition that explains why a node does not apply class files, or "".
func reasonOf(status *nodeqosv1alpha1.NodeQOSResourcesStatus) string {
	for _, kind := range []string{nodeqosv1alpha1.ConditionPluginReady, nodeqosv1alpha1.ConditionConfigurationApplied} {
		if c := meta.FindStatusCondition(status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return fmt.Sprintf(" (%s: %s)", c.Reason, c.Message)
		}
	}
	return ""
}
