// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Core makes requests about pods, events and nodes. It has only a few of the methods of client-go's clientset. The
// clientset is not used, because it registers the types of all API groups, which takes several MiB of memory on each node.
type Core interface {
	Pods(namespace string) Pods
	Events(namespace string) Events
	Nodes() Nodes
}

// Pods makes requests about the pods of a namespace, or of all namespaces.
type Pods interface {
	List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.Pod, error)
	EvictV1(ctx context.Context, eviction *policyv1.Eviction) error
}

// Events makes requests about the events of a namespace.
type Events interface {
	Create(ctx context.Context, event *corev1.Event, options metav1.CreateOptions) (*corev1.Event, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*corev1.Event, error)
}

// Nodes makes requests about nodes.
type Nodes interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error)
}

type core struct {
	client rest.Interface
	codec  runtime.ParameterCodec // encodes the options of a request as query parameters
}

// NewCore returns a client for a configuration that Config has returned. NewCore makes no request. An error means that
// the credentials cannot be used.
func NewCore(config *rest.Config) (Core, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}

	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &core{client: client, codec: runtime.NewParameterCodec(scheme)}, nil
}

// request adds the resource and, unless it is empty, the namespace to a request.
func request(r *rest.Request, namespace, resource string) *rest.Request {
	return r.NamespaceIfScoped(namespace, namespace != "").Resource(resource)
}

type pods struct {
	*core
	namespace string
}

func (c *core) Pods(namespace string) Pods { return pods{c, namespace} }

func (p pods) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	return list, p.list(options).Do(ctx).Into(list)
}

func (p pods) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return p.list(options).Watch(ctx)
}

func (p pods) list(options metav1.ListOptions) *rest.Request {
	var timeout time.Duration
	if seconds := options.TimeoutSeconds; seconds != nil {
		timeout = time.Duration(*seconds) * time.Second
	}
	return request(p.client.Get(), p.namespace, "pods").VersionedParams(&options, p.codec).Timeout(timeout)
}

func (p pods) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string,
) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, request(p.client.Patch(kind), p.namespace, "pods").Name(name).SubResource(subresources...).
		VersionedParams(&options, p.codec).Body(data).Do(ctx).Into(pod)
}

func (p pods) EvictV1(ctx context.Context, eviction *policyv1.Eviction) error {
	return request(p.client.Post(), p.namespace, "pods").Name(eviction.Name).SubResource("eviction").Body(eviction).Do(ctx).Error()
}

type events struct {
	*core
	namespace string
}

func (c *core) Events(namespace string) Events { return events{c, namespace} }

func (e events) Create(ctx context.Context, event *corev1.Event, options metav1.CreateOptions) (*corev1.Event, error) {
	created := &corev1.Event{}
	return created, request(e.client.Post(), e.namespace, "events").VersionedParams(&options, e.codec).Body(event).Do(ctx).Into(created)
}

func (e events) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string,
) (*corev1.Event, error) {
	event := &corev1.Event{}
	return event, request(e.client.Patch(kind), e.namespace, "events").Name(name).SubResource(subresources...).
		VersionedParams(&options, e.codec).Body(data).Do(ctx).Into(event)
}

type nodes struct{ *core }

func (c *core) Nodes() Nodes { return nodes{c} }

func (n nodes) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, request(n.client.Get(), "", "nodes").Name(name).VersionedParams(&options, n.codec).Do(ctx).Into(node)
}
