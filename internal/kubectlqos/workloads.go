// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
)

// workloadType is a kind of objects that have pods.
type workloadType struct {
	// names has the names of the type in commands. Messages use the first one.
	names []string
	// `selector` returns the label selector of an object's pods. `list` lists the objects of the type.
	selector func(ctx context.Context, api *clients, name string) (*metav1.LabelSelector, error)
	list     func(ctx context.Context, api *clients) (runtime.Object, error)
}

func workloadTypes() []workloadType {
	return []workloadType{
		{
			names: []string{"deployment", "deployments", "deploy", "deployment.apps", "deployments.apps"},
			selector: func(ctx context.Context, api *clients, name string) (*metav1.LabelSelector, error) {
				object, err := api.core.AppsV1().Deployments(api.namespace).Get(ctx, name, metav1.GetOptions{})
				return object.Spec.Selector, err
			},
			list: func(ctx context.Context, api *clients) (runtime.Object, error) {
				return api.core.AppsV1().Deployments(api.namespace).List(ctx, metav1.ListOptions{})
			},
		},
		{
			names: []string{"statefulset", "statefulsets", "sts", "statefulset.apps", "statefulsets.apps"},
			selector: func(ctx context.Context, api *clients, name string) (*metav1.LabelSelector, error) {
				object, err := api.core.AppsV1().StatefulSets(api.namespace).Get(ctx, name, metav1.GetOptions{})
				return object.Spec.Selector, err
			},
			list: func(ctx context.Context, api *clients) (runtime.Object, error) {
				return api.core.AppsV1().StatefulSets(api.namespace).List(ctx, metav1.ListOptions{})
			},
		},
		{
			names: []string{"daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"},
			selector: func(ctx context.Context, api *clients, name string) (*metav1.LabelSelector, error) {
				object, err := api.core.AppsV1().DaemonSets(api.namespace).Get(ctx, name, metav1.GetOptions{})
				return object.Spec.Selector, err
			},
			list: func(ctx context.Context, api *clients) (runtime.Object, error) {
				return api.core.AppsV1().DaemonSets(api.namespace).List(ctx, metav1.ListOptions{})
			},
		},
	}
}

// workload is a pod, or the pods of an object. Its type is nil for a pod.
type workload struct {
	of   *workloadType
	name string
}

// workloadOf reads a command-line argument of the form POD or TYPE/NAME.
func workloadOf(word string) (workload, error) {
	before, _, typed := strings.Cut(word, "/")
	for _, of := range workloadTypes() {
		if typed && slices.Contains(of.names, strings.ToLower(before)) {
			name, err := nameOf(word, of.names...)
			return workload{&of, name}, err
		}
	}
	name, err := podName(word)
	if err != nil && typed {
		err = fmt.Errorf("%q is neither a pod nor a workload; pass a POD, deployment/NAME, statefulset/NAME or daemonset/NAME", word)
	}
	return workload{nil, name}, err
}

// pods returns the pod, or the pods of the object that have a node and have not ended.
func (w workload) pods(ctx context.Context, api *clients) ([]corev1.Pod, error) {
	if w.of == nil {
		pod, err := api.getRecordedPod(ctx, w.name)
		if err != nil {
			return nil, err
		}
		return []corev1.Pod{*pod}, nil
	}

	labels, err := w.of.selector(ctx, api, w.name)
	if kubeapi.OutcomeOf(err) == kubeapi.NotFound {
		return nil, fmt.Errorf("there is no %s %q in namespace %q; name another namespace with -n", w.of.names[0], w.name, api.namespace)
	}
	if err != nil {
		return nil, explain(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(labels)
	if err != nil {
		return nil, fmt.Errorf("selector of %s %q: %w", w.of.names[0], w.name, err)
	}
	pods, err := api.listPods(ctx, api.namespace, selector.String())
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" || podspec.Finished(&p) || p.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return nil, fmt.Errorf("%s %q has no running pod, so nothing is recorded of it", w.of.names[0], w.name)
	}
	return pods, nil
}

func (c *cluster) completeWorkload(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	before, _, isTyped := strings.Cut(begun, "/")
	for _, of := range workloadTypes() {
		if isTyped && slices.Contains(of.names, strings.ToLower(before)) {
			names := c.complete(cmd, func(ctx context.Context, api *clients) ([]string, error) { return namesIn(of.list(ctx, api)) })
			return typed(before, names), noFiles
		}
	}
	return c.completePod(cmd, args, begun)
}
