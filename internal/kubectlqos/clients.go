// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// What one command may ask of the API server, in requests a second and at once: as much as kubectl.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 300
)

// nodeKind is the resource NodeQOSResources of the Kubernetes API.
func nodeKind() schema.GroupVersionResource {
	return nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)
}

// clients reach one cluster.
type clients struct {
	core    kubernetes.Interface
	objects dynamic.Interface
	// namespace is that of --namespace, or of the kubeconfig's context.
	namespace string
}

// connect makes clients out of kubectl's flags. It asks the cluster nothing yet.
func connect(flags genericclioptions.RESTClientGetter, agent string, warnings io.Writer) (*clients, error) {
	loaded, err := flags.ToRESTConfig()
	if err != nil {
		return nil, unusable(err)
	}
	config := rest.CopyConfig(loaded)
	config.UserAgent, config.QPS, config.Burst = agent, requestsPerSecond, requestsAtOnce
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, unusable(err)
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, unusable(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, unusable(err)
	}
	return &clients{core: core, objects: objects, namespace: namespace}, nil
}

func unusable(err error) error {
	return fmt.Errorf("no cluster can be reached with this configuration: %w; see --kubeconfig, --context and KUBECONFIG", err)
}

// listNodes lists the NodeQOSResources of the cluster as the API server has them.
func (c *clients) listNodes(ctx context.Context) (*unstructured.UnstructuredList, error) {
	list, err := c.objects.Resource(nodeKind()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explain(err)
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return list, nil
}

// nodeObjects has the NodeQOSResources of the cluster, by name of the node.
func (c *clients) nodeObjects(ctx context.Context) ([]nodeqosv1alpha1.NodeQOSResources, error) {
	list, err := c.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]nodeqosv1alpha1.NodeQOSResources, 0, len(list.Items))
	for i := range list.Items {
		node, err := typed(&list.Items[i])
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, *node)
	}
	return nodes, nil
}

// getNode gets the NodeQOSResources of one node as the API server has it; its error says which there are.
func (c *clients) getNode(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	object, err := c.objects.Resource(nodeKind()).Get(ctx, name, metav1.GetOptions{})
	if kubeapi.OutcomeOf(err) == kubeapi.NotFound {
		return nil, c.noNode(ctx, name)
	}
	return object, explain(err)
}

func (c *clients) noNode(ctx context.Context, name string) error {
	list, err := c.listNodes(ctx)
	if err != nil {
		return err
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return fmt.Errorf("node %q tells nothing of QoS-class resources%s; is the name right, and does qos-kubelet-shim run there?",
		name, others("; those that do are ", names))
}

// nodeOf has what the node of a pod tells; nil when it tells nothing.
func (c *clients) nodeOf(ctx context.Context, pod *corev1.Pod) (*nodeqosv1alpha1.NodeQOSResources, error) {
	object, err := c.objects.Resource(nodeKind()).Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	switch {
	case kubeapi.OutcomeOf(err) == kubeapi.NotFound:
		return nil, nil
	case err != nil:
		return nil, explain(err)
	}
	return typed(object)
}

// typed reads an object of the API. Fields that a newer version has are left out.
func typed(object *unstructured.Unstructured) (*nodeqosv1alpha1.NodeQOSResources, error) {
	node := &nodeqosv1alpha1.NodeQOSResources{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, node); err != nil {
		return nil, fmt.Errorf("NodeQOSResources %s is not of this version: %w; update kubectl qos", object.GetName(), err)
	}
	return node, nil
}

// getPod gets a pod; its error says in which namespace it was looked for.
func (c *clients) getPod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod, err := c.core.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if kubeapi.OutcomeOf(err) == kubeapi.NotFound {
		return nil, fmt.Errorf("there is no pod %q in namespace %q; name another namespace with -n", name, c.namespace)
	}
	if err != nil {
		return nil, explain(err)
	}
	return pod, nil
}

// listPods lists pods of a namespace, or with "" of all.
func (c *clients) listPods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	list, err := c.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, explain(err)
	}
	return list.Items, nil
}

// maxNames is how many names an error lists.
const maxNames = 8

// others lists names for an error, after some words; nothing when there are none.
func others(words string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s%s and %d more", words, strings.Join(names[:maxNames], ", "), more)
	}
	return words + strings.Join(names, ", ")
}
