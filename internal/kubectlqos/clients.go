// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
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
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// requestsPerSecond and requestsAtOnce (the burst) limit the requests to the API server. kubectl has the same limits.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 300
)

func nodeKind() schema.GroupVersionResource {
	return nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)
}

type clients struct {
	core    kubernetes.Interface
	objects dynamic.Interface
	// namespace is the value of --namespace, or the namespace of the kubeconfig's context.
	namespace string
	fetch     fetch
	read      readNodes
	progress  *progress
}

// connect makes clients from kubectl's flags. It sends no request.
func connect(flags genericclioptions.RESTClientGetter, agent string, warnings io.Writer) (*clients, error) {
	loaded, err := flags.ToRESTConfig()
	if err != nil {
		return nil, unusable(err)
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, unusable(err)
	}

	config := rest.CopyConfig(loaded)
	config.UserAgent, config.QPS, config.Burst = agent, requestsPerSecond, requestsAtOnce
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, unusable(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, unusable(err)
	}
	return &clients{
		core: core, objects: objects, namespace: namespace, fetch: newFetch(config, core), read: newReadNodes(core), progress: newProgress(warnings),
	}, nil
}

func unusable(err error) error {
	return fmt.Errorf("no cluster can be reached with this configuration: %w; check --kubeconfig, --context and KUBECONFIG", err)
}

// listNodes lists the NodeQOSResources of the cluster, sorted by name.
func (c *clients) listNodes(ctx context.Context) (*unstructured.UnstructuredList, error) {
	all := &unstructured.UnstructuredList{}
	err := c.eachPage(func(options metav1.ListOptions) (page metav1.ListMeta, objects int, err error) {
		list, err := c.objects.Resource(nodeKind()).List(ctx, options)
		if err != nil {
			return page, 0, err
		}
		list.Items = append(all.Items, list.Items...)
		objects, all = len(list.Items)-len(all.Items), list
		return metav1.ListMeta{Continue: list.GetContinue(), RemainingItemCount: list.GetRemainingItemCount()}, objects, nil
	})
	slices.SortFunc(all.Items, byName)
	return all, err
}

func byName(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) }

// getNode returns the NodeQOSResources of one node. If there is none, the error lists the nodes that have such an object.
func (c *clients) getNode(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	object, err := c.objects.Resource(nodeKind()).Get(ctx, name, metav1.GetOptions{})
	if kubeapi.OutcomeOf(err) != kubeapi.NotFound {
		return object, explain(err)
	}

	names, err := c.nodeNames(ctx)
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("node %q has no NodeQOSResources%s; check the name, and that qos-kubelet-shim runs there",
		name, others("; nodes with one: ", names))
}

// findNode returns the NodeQOSResources of a node. It returns nil if there is no such object.
func (c *clients) findNode(ctx context.Context, name string) (*nodeqosv1alpha1.NodeQOSResources, error) {
	object, err := c.objects.Resource(nodeKind()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kubeapi.OutcomeOf(err) == kubeapi.NotFound:
		return nil, nil
	case err != nil:
		return nil, explain(err)
	}

	return typed[nodeqosv1alpha1.NodeQOSResources](object)
}

// typed converts an object to its Go type. It ignores fields that newer API versions have added.
func typed[T any](object *unstructured.Unstructured) (*T, error) {
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return nil, unreadable(object.GetKind(), object.GetName(), err)
	}
	return into, nil
}

// allTyped converts NodeQOSResources to their Go type.
func allTyped(objects []unstructured.Unstructured) (nodes []nodeqosv1alpha1.NodeQOSResources, err error) {
	for i := range objects {
		node, err := typed[nodeqosv1alpha1.NodeQOSResources](&objects[i])
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, *node)
	}
	return nodes, nil
}

func (c *clients) getPod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod, err := c.core.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
	return pod, c.explainGet(err, "pod", name)
}

// explainGet is like explain, for the request of one object in the namespace. If there is no such object, the error names the namespace.
func (c *clients) explainGet(err error, of, name string) error {
	if kubeapi.OutcomeOf(err) == kubeapi.NotFound {
		return fmt.Errorf("there is no %s %q in namespace %q; name another namespace with -n", of, name, c.namespace)
	}
	return explain(err)
}

func (c *clients) listPods(ctx context.Context, namespace, selector string) ([]corev1.Pod, error) {
	list, err := c.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, explain(err)
	}
	return list.Items, nil
}

// nameOf returns NAME from a command-line argument of the form NAME or TYPE/NAME. `types` has the accepted names of the
// type. Errors use the first of them.
func nameOf(word string, types ...string) (string, error) {
	of, name, typed := strings.Cut(word, "/")
	switch {
	case !typed:
		return word, nil
	case !slices.Contains(types, strings.ToLower(of)):
		return "", fmt.Errorf("%q is not a %s; pass a %s as NAME or %s/NAME", word, types[0], types[0], types[0])
	case name == "" || strings.Contains(name, "/"):
		return "", fmt.Errorf("%q does not name a %s; pass one as NAME or %s/NAME", word, types[0], types[0])
	}
	return name, nil
}

func podName(word string) (string, error) { return nameOf(word, "pod", "pods", "po") }

// others returns `words` and a list of the names, or "" if there are no names.
func others(words string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return words + program.List(names)
}

// These are the errors for a missing permission and for a missing CRD. Other errors wrap them.
var (
	errForbidden = errors.New("a permission is missing")
	errNoKind    = errors.New("this cluster has no kind NodeQOSResources")
)

// explain converts an error of the API server, or of the connection to the server, to one line that has the remedy.
func explain(err error) error {
	switch kubeapi.OutcomeOf(err) {
	case kubeapi.OK:
		return nil
	case kubeapi.NoSuchKind:
		return fmt.Errorf("%w; install the plugin as docs/kubernetes.md describes; "+
			"if only the CRD is missing, run \"helm upgrade\" with crds.install=true, or kubectl apply -f deploy/kubernetes/crd.yaml", errNoKind)
	case kubeapi.Forbidden:
		remedy := "list your permissions with: kubectl auth can-i --list"
		if strings.Contains(kubeapi.Message(err), nodeqosv1alpha1.Plural) {
			remedy = "ask an administrator to name you in the value viewers of the Helm chart, or to grant you the ClusterRole of docs/kubectl.md"
		}
		return fmt.Errorf("%w: %s; %s", errForbidden, kubeapi.Message(err), remedy)
	case kubeapi.Unauthorized:
		return fmt.Errorf("the API server does not accept the credentials: %s; log in again, or choose others with --kubeconfig or --context", kubeapi.Message(err))
	case kubeapi.Unavailable:
		return fmt.Errorf("%s does not answer: %s; check the cluster with: kubectl config current-context", kubeapi.Server(err), kubeapi.Cause(err))
	case kubeapi.TooMany:
		return fmt.Errorf("the API server is overloaded: %s; try again later", kubeapi.Message(err))
	case kubeapi.NotFound, kubeapi.Conflict, kubeapi.Invalid, kubeapi.Failed:
	}
	return errors.New(kubeapi.Message(err))
}
