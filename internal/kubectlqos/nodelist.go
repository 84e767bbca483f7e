// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// nodesPerPage is the maximum number of nodes in a response. kubectl has the same limit.
const nodesPerPage = 500

// namesOnly is the media type of lists whose objects have only metadata.
const namesOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// readNodes requests one page of the NodeQOSResources, passes each object to `each`, and returns the metadata of the
// page.
type readNodes func(ctx context.Context, mediaType string, page metav1.ListOptions, each func(*nodeqosv1alpha1.NodeQOSResources)) (metav1.ListMeta, error)

// newReadNodes returns a function that decodes the nodes one after another while it receives them. An object can have
// more than 1 MiB, mostly of holders, so a decoded page of objects would need much memory.
func newReadNodes(core kubernetes.Interface) readNodes {
	return func(
		ctx context.Context, mediaType string, page metav1.ListOptions, each func(*nodeqosv1alpha1.NodeQOSResources),
	) (metav1.ListMeta, error) {
		kind := nodeKind()
		body, err := core.CoreV1().RESTClient().Get().AbsPath("/apis", kind.Group, kind.Version, kind.Resource).
			SetHeader("Accept", mediaType).VersionedParams(&page, scheme.ParameterCodec).Stream(ctx)
		if err != nil {
			return metav1.ListMeta{}, err
		}
		defer func() { _ = body.Close() }()

		metadata, err := decodeNodes(body, each)
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) { // the end is inside of a value, or between two values
			return metadata, fmt.Errorf("the response of the API server ended early: %w; try again", io.ErrUnexpectedEOF)
		}
		return metadata, err
	}
}

// decodeNodes decodes a list in JSON.
func decodeNodes(body io.Reader, each func(*nodeqosv1alpha1.NodeQOSResources)) (page metav1.ListMeta, err error) {
	list := json.NewDecoder(body)
	if _, err := list.Token(); err != nil { // {
		return page, err
	}
	for list.More() {
		field, err := list.Token()
		switch {
		case err != nil:
		case field == "items":
			err = decodeItems(list, each)
		case field == "metadata":
			err = list.Decode(&page)
		default:
			err = list.Decode(&json.RawMessage{})
		}
		if err != nil {
			return page, err
		}
	}
	_, err = list.Token() // }, or the error of a response that was cut off
	return page, err
}

func decodeItems(list *json.Decoder, each func(*nodeqosv1alpha1.NodeQOSResources)) error {
	if open, err := list.Token(); err != nil || open != json.Delim('[') { // null is an empty list
		return err
	}
	for list.More() {
		var node nodeqosv1alpha1.NodeQOSResources
		err := list.Decode(&node)
		var wrong *json.UnmarshalTypeError
		var noTime *time.ParseError
		switch {
		case errors.As(err, &wrong) || errors.As(err, &noTime):
			return unreadable(nodeqosv1alpha1.Kind, node.Name, err)
		case err != nil:
			return err
		}
		each(&node)
	}
	_, err := list.Token() // ]
	return err
}

// eachNode passes the NodeQOSResources of the cluster to a function, in the order of their names. It keeps none of them.
func (c *clients) eachNode(ctx context.Context, each func(*nodeqosv1alpha1.NodeQOSResources)) error {
	return c.eachOf(ctx, "application/json", each)
}

// nodeNames returns the names of the nodes that have NodeQOSResources.
func (c *clients) nodeNames(ctx context.Context) (names []string, err error) {
	err = c.eachOf(ctx, namesOnly, func(node *nodeqosv1alpha1.NodeQOSResources) { names = append(names, node.Name) })
	return names, err
}

func (c *clients) eachOf(ctx context.Context, mediaType string, each func(*nodeqosv1alpha1.NodeQOSResources)) error {
	return c.eachPage(func(options metav1.ListOptions) (page metav1.ListMeta, read int, err error) {
		page, err = c.read(ctx, mediaType, options, func(node *nodeqosv1alpha1.NodeQOSResources) { read++; each(node) })
		return page, read, err
	})
}

// eachPage requests all pages of a list. `read` requests one page, and returns its metadata and the number of its objects. If a list
// takes so long that the API server no longer has the state in which it began, the next pages have the present state.
func (c *clients) eachPage(read func(options metav1.ListOptions) (page metav1.ListMeta, objects int, err error)) error {
	defer c.progress.clear()
	options, all := metav1.ListOptions{Limit: nodesPerPage}, 0
	for {
		page, objects, err := read(options)
		var expired apierrors.APIStatus
		switch {
		case options.Continue != "" && apierrors.IsResourceExpired(err) && errors.As(err, &expired) && expired.Status().Continue != "":
			options.Continue = expired.Status().Continue
			continue
		case err != nil:
			return explain(err)
		case page.Continue == "":
			return nil
		}

		options.Continue = page.Continue
		if all += objects; page.RemainingItemCount != nil {
			c.progress.show(all, all+int(*page.RemainingItemCount))
		}
	}
}

// summary removes all lists that grow with the pods of the node. No table of all nodes shows them.
func summary(node *nodeqosv1alpha1.NodeQOSResources) nodeqosv1alpha1.NodeQOSResources {
	for _, r := range node.Status.QOSResources.All() {
		r.Foreign = nil
		for i := range r.Classes {
			r.Classes[i].Holders = nil
		}
	}
	node.ManagedFields, node.Spec = nil, nodeqosv1alpha1.NodeQOSResourcesSpec{}
	node.Status.Refusals, node.Status.Volumes = nil, nil
	return *node
}

// summaries returns the NodeQOSResources of the cluster without their holders and refusals, in the order of their names.
func (c *clients) summaries(ctx context.Context) (nodes []nodeqosv1alpha1.NodeQOSResources, err error) {
	err = c.eachNode(ctx, func(node *nodeqosv1alpha1.NodeQOSResources) { nodes = append(nodes, summary(node)) })
	return nodes, err
}

// fewNodes is the largest number of nodes that are read one by one. If there are more, the list of all nodes is read.
const fewNodes = 20

// nodesOf returns the NodeQOSResources of the nodes of pods, with their holders. If a pod has no node, or if there are
// many nodes, it also returns the other nodes of the cluster, without their holders.
func (c *clients) nodesOf(ctx context.Context, pods []corev1.Pod) (nodes []nodeqosv1alpha1.NodeQOSResources, err error) {
	of := map[string]bool{}
	for i := range pods {
		of[pods[i].Spec.NodeName] = true
	}
	if of[""] || len(of) > fewNodes {
		err = c.eachNode(ctx, func(node *nodeqosv1alpha1.NodeQOSResources) {
			if of[node.Name] {
				nodes = append(nodes, *node)
				return
			}
			nodes = append(nodes, summary(node))
		})
		return nodes, err
	}

	for name := range of {
		node, err := c.findNode(ctx, name)
		if err != nil {
			return nil, err
		}
		if node != nil {
			nodes = append(nodes, *node)
		}
	}
	return nodes, nil
}

// unreadable explains why an object cannot be decoded.
func unreadable(kind, name string, err error) error {
	return fmt.Errorf("this version of kubectl qos cannot read %s %s: %w; update kubectl qos", kind, name, err)
}

// progressAfter is how long a list takes before progress is shown.
const progressAfter = time.Second

// progress shows on a terminal how much of a list has been read. A nil *progress shows nothing.
type progress struct {
	out   io.Writer
	now   func() time.Time
	began time.Time
	shown bool
}

func newProgress(out io.Writer) *progress {
	if !isTerminal(out) {
		return nil
	}
	return &progress{out: out, now: time.Now, began: time.Now()}
}

func (p *progress) show(read, all int) {
	if p == nil || p.now().Sub(p.began) < progressAfter {
		return
	}
	p.shown = true
	fmt.Fprintf(p.out, "\rReading nodes: %d of %d", read, all)
}

func (p *progress) clear() {
	if p != nil && p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}
