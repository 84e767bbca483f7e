// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
)

const (
	// pluginSelector selects the plugin's pods in the manifests and in the chart. The container and its port for metrics have
	// the name pluginContainer.
	pluginSelector  = "app.kubernetes.io/name=qos-nri-plugin"
	pluginContainer = "plugin"
	// askTime limits how long a node may take to answer. askAtOnce is the maximum number of nodes that are asked at the same time.
	askTime   = 10 * time.Second
	askAtOnce = 20
)

// measured is the usage of a class or container on a node. Its JSON form is part of a node's answer and of the output of
// -o json.
type measured struct {
	Node     string `json:"node"`
	Resource string `json:"resource"`
	Class    string `json:"class"`
	// Namespace, Pod and ID are empty for a class. Container is also empty for a pod as a whole.
	Namespace    string               `json:"namespace,omitempty"`
	Pod          string               `json:"pod,omitempty"`
	Container    string               `json:"container,omitempty"`
	ID           string               `json:"id,omitempty"`
	Measurements []tables.Measurement `json:"measurements"`
}

// nodeUsage is the answer of a node: the JSON form of qos.v1alpha1.WatchUsageResponse, whose Go type would link gRPC.
type nodeUsage struct {
	Time       time.Time  `json:"time"`
	Classes    []measured `json:"classes"`
	Containers []measured `json:"containers"`
}

// nodesUsage maps the name of a node to the node's answer.
type nodesUsage map[string]nodeUsage

// pluginPods returns the plugin's pods on a node, or on all nodes if `node` is empty, sorted by node.
func (c *clients) pluginPods(ctx context.Context, namespace, node string) ([]corev1.Pod, error) {
	pods, err := c.listPods(ctx, namespace, pluginSelector)
	if err != nil {
		return nil, err
	}

	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" || p.DeletionTimestamp != nil || node != "" && p.Spec.NodeName != node
	})
	if len(pods) == 0 {
		on := "any node"
		if node != "" {
			on = fmt.Sprintf("node %q", node)
		}
		return nil, fmt.Errorf("namespace %q has no pod of qos-nri-plugin on %s; check the DaemonSet, or name its namespace with --plugin-namespace", namespace, on)
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	return pods, nil
}

// usageOf gets the usage of a node from the plugin's pod on this node. Its errors include the remedy.
func (c *clients) usageOf(ctx context.Context, pod *corev1.Pod) (usage nodeUsage, err error) {
	err = c.askPlugin(ctx, pod, "/usage", &usage)
	if errors.As(err, new(podError)) {
		err = fmt.Errorf("%w; see: kubectl logs -n %s %s -c %s", err, pod.Namespace, pod.Name, pluginContainer)
	}
	return usage, err
}

// askEach calls `ask` with each pod, several at once. It returns the answer or the error of each.
func askEach[T any](pods []corev1.Pod, ask func(*corev1.Pod) (T, error)) (answers []T, problems []error) {
	answers, problems = make([]T, len(pods)), make([]error, len(pods))
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for i := range pods {
		asking.Go(func() error {
			answers[i], problems[i] = ask(&pods[i])
			return nil
		})
	}
	_ = asking.Wait() // always nil, because the functions store their errors in `problems`
	return answers, problems
}

// askPlugin reads the JSON at a path of the plugin's port for metrics. An error that the pod reports is a podError. The other errors
// include the remedy.
func (c *clients) askPlugin(ctx context.Context, pod *corev1.Pod, path string, answer any) error {
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("pod %[1]s is %[2]s; see: kubectl describe pod -n %[3]s %[1]s", pod.Name, pod.Status.Phase, pod.Namespace)
	}
	port := metricsPort(pod)
	if port == 0 {
		return fmt.Errorf("pod %s has no port %q; install the plugin as the manifests do, with --metrics-address and this port", pod.Name, pluginContainer)
	}

	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	data, err := c.fetch(ctx, pod, port, path)
	switch {
	case errors.As(err, new(podError)):
		return err
	case kubeapi.OutcomeOf(err) == kubeapi.Forbidden:
		return fmt.Errorf("%w: %s; this command needs a Role in namespace %s with the verbs get and create for pods/portforward",
			errForbidden, kubeapi.Message(err), pod.Namespace)
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("no answer within %s; see: kubectl describe pod -n %s %s", askTime, pod.Namespace, pod.Name)
	case err != nil:
		return explain(err)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the answer of qos-nri-plugin cannot be read: %w; use the version of kubectl qos that matches the plugin", err)
	}
	return nil
}

// metricsPort returns the number of the plugin's port for metrics, or 0.
func metricsPort(pod *corev1.Pod) int32 {
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.Name == pluginContainer {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// lacks returns notes on what a node does not measure. Each note includes the remedy.
func (u nodeUsage) lacks(containers bool) (notes []string) {
	if len(u.Classes) == 0 {
		return []string{"nothing is measured: no resource is available, or the machine cannot measure usage; see: kubectl qos nodes"}
	}
	if !containers {
		return nil
	}

	with := map[string]bool{}
	for _, c := range u.Containers {
		with[c.Resource] = true
	}
	for _, c := range u.Classes {
		if !with[c.Resource] {
			with[c.Resource] = true
			notes = append(notes, fmt.Sprintf("no container is measured for %s; if containers use it, add \"monitoring: containers\" to its class file", c.Resource))
		}
	}
	return notes
}

// items returns the classes of all nodes. If `containers` is true, the containers of all nodes follow.
func (n nodesUsage) items(containers bool) (items []measured) {
	names := slices.Sorted(maps.Keys(n))
	add := func(node string, of []measured) {
		for _, item := range of {
			item.Node = node
			items = append(items, item)
		}
	}
	for _, name := range names {
		add(name, n[name].Classes)
	}
	for _, name := range names {
		if containers {
			add(name, n[name].Containers)
		}
	}
	return items
}

// usageView selects what usage tables show.
type usageView struct {
	// byNode adds up the classes of each node. containers adds a table of containers and pods.
	byNode, containers bool
	// sortBy is one of tables.Orders, or empty for the order of the names.
	sortBy string
}

// item returns what the tables show of a class, a container or a pod.
func (v usageView) item(m *measured, took time.Duration) tables.Item {
	item := tables.Item{
		Key: strings.Join([]string{m.Node, m.Resource, m.Class, m.ID}, " "), Resource: m.Resource, Measurements: m.Measurements, Took: took,
		Header: []string{"NODE", "RESOURCE", "CLASS"}, Names: []string{m.Node, m.Resource, className(m.Class)},
	}
	switch {
	case m.Pod != "":
		item.Header = []string{"NODE", "RESOURCE", "NAMESPACE", "POD", "CONTAINER", "CLASS"}
		item.Names = []string{m.Node, m.Resource, m.Namespace, m.Pod, cmp.Or(m.Container, wholePod), className(m.Class)}
	case v.byNode:
		item.Header, item.Names = item.Header[:2], item.Names[:2]
	}
	return item
}

// usageTables formats the usage between two answers of each node: a table for the classes of each resource, and one for the containers.
func usageTables(before, now nodesUsage, view usageView) string {
	var earlier, later []tables.Item
	for _, m := range before.items(view.containers) {
		earlier = append(earlier, view.item(&m, 0))
	}
	for _, m := range now.items(view.containers) {
		later = append(later, view.item(&m, now[m.Node].Time.Sub(before[m.Node].Time)))
	}

	var texts []string
	for _, cells := range tables.Usage(earlier, later, view.sortBy) {
		texts = append(texts, align(cells, ""))
	}
	return strings.Join(texts, "\n")
}
