// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
)

// workloadType is a type of objects that have pods.
type workloadType struct{ name, short string }

func statefulSets() workloadType { return workloadType{"statefulset", "sts"} }

func workloadTypes() []workloadType {
	return []workloadType{{"deployment", "deploy"}, statefulSets(), {"daemonset", "ds"}}
}

// names returns the names of the type in commands. Messages use the first one.
func (t workloadType) names() []string {
	return []string{t.name, t.name + "s", t.short, t.name + ".apps", t.name + "s.apps"}
}

func (t workloadType) objects(api *clients) dynamic.ResourceInterface {
	return api.objects.Resource(appsv1.SchemeGroupVersion.WithResource(t.name + "s")).Namespace(api.namespace)
}

// typeIn returns the type of workloads in a word of the form TYPE/NAME, or nil if there is none.
func typeIn(word string) *workloadType {
	before, _, found := strings.Cut(word, "/")
	for _, t := range workloadTypes() {
		if found && slices.Contains(t.names(), strings.ToLower(before)) {
			return &t
		}
	}
	return nil
}

// workload is a pod, or the pods of an object. Its type is nil for a pod.
type workload struct {
	of   *workloadType
	name string
}

// workloadOf reads a command-line argument of the form POD or TYPE/NAME.
func workloadOf(word string) (workload, error) {
	if of := typeIn(word); of != nil {
		name, err := nameOf(word, of.names()...)
		return workload{of, name}, err
	}
	name, err := podName(word)
	if err != nil && strings.Contains(word, "/") {
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

	content, err := w.of.objects(api).Get(ctx, w.name, metav1.GetOptions{})
	if err != nil {
		return nil, api.explainGet(err, w.of.name, w.name)
	}
	object, err := typed[struct {
		Spec struct {
			Selector *metav1.LabelSelector `json:"selector"`
		} `json:"spec"`
	}](content)
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of %s %q: %w", w.of.name, w.name, err)
	}
	pods, err := api.listPods(ctx, api.namespace, selector.String())
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" || podspec.Finished(&p) || p.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return nil, fmt.Errorf("%s %q has no running pod, so nothing is recorded of it", w.of.name, w.name)
	}
	return pods, nil
}

func (c *cluster) completeWorkload(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	of := typeIn(begun)
	if of == nil {
		return c.completePod(cmd, args, begun)
	}
	before, _, _ := strings.Cut(begun, "/")
	names, directive := c.complete(cmd, func(ctx context.Context, api *clients) ([]string, error) {
		return namesIn(of.objects(api).List(ctx, metav1.ListOptions{}))
	})
	return withType(before, names), directive
}
