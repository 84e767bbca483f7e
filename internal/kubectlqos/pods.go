// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/columns"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// podsCommand is one run of "kubectl qos pods".
type podsCommand struct {
	*cluster
	documents
	pod, selector  string
	everywhere     bool
	watch          bool
	widths         columns.Widths
	shown          map[subjectOfPod]string
	titled, readOn bool
}

// subjectOfPod is what a row is of.
type subjectOfPod struct{ namespace, pod, container, resource string }

func newPodsCommand(c *cluster) *cobra.Command {
	o := &podsCommand{cluster: c, shown: map[subjectOfPod]string{}}
	cmd := &cobra.Command{
		Use:     "pods [POD]",
		Aliases: []string{"pod", "po"},
		Short:   "Show which classes pods ask for and have, and why they differ",
		Long: `pods shows a line for each container, or pod, and QoS-class resource of its node: the class that is asked for, the one in
effect, where it comes from, and why it is another or none. What is asked for follows from annotations and limits by the
same rules as on the node; of a pod without a node, only that is shown. What is in effect is what the node tells.

Sources: container, allocated (an extended resource in the limits), pod, default (the resource's), update (a change of what
runs), adopted (it ran in the class when the plugin found it), and "-" for nothing asked and no default.

Documents (-o json, yaml) have "items" with namespace, pod, container (empty for the whole pod), resource, requested,
requestedBy, source, effective, reason, message and node. A class "" is the system default; null is none, or not known.`,
		Example: `  kubectl qos pods -A
  kubectl qos pods web -o wide
  kubectl qos pods -l app=web -o json | jq '.items[] | select(.reason != "")'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return program.UsageError(cmd, fmt.Errorf("one POD is the most, not %d; choose several with -l", len(args)))
			}
			return nil
		},
		ValidArgsFunction: c.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return program.UsageError(cmd, err)
			}
			if err := o.documents.check(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlag(cmd)
	cmd.Flags().BoolVarP(&o.everywhere, "all-namespaces", "A", false, "Show pods of all namespaces.")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "Label selector of the pods, e.g. -l key1=value1,key2=value2.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After that, show what changes, until interrupted.")
	return cmd
}

// check reads the name, and finds what is wrong with the command line.
func (o *podsCommand) check(args []string) (err error) {
	if len(args) == 1 {
		if o.pod, err = podName(args[0]); err != nil {
			return err
		}
	}
	if o.pod != "" && (o.everywhere || o.selector != "") {
		return errors.New("a POD by name goes with neither -A nor -l")
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return fmt.Errorf("--selector %q: %w", o.selector, err)
	}
	return nil
}

func (o *podsCommand) run(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	namespace := api.namespace
	if o.everywhere {
		namespace = metav1.NamespaceAll
	}
	nodes, err := o.readNodes(ctx, api)
	if err != nil {
		return err
	}
	pods, err := o.readPods(ctx, api, namespace)
	if err != nil {
		return err
	}
	if err := o.show(podRows(pods, nodes, o.readOn, o.now()), namespace); err != nil || !o.watch {
		return err
	}
	w := newPodWatch(api, namespace, o.pod, o.selector, o.streams.ErrOut)
	return w.follow(ctx, func() error {
		nodes, err := allTyped(w.nodes())
		if err != nil {
			return err
		}
		return o.show(podRows(w.pods(), nodes, true, o.now()), namespace)
	})
}

// readNodes reads what nodes tell. Who may not read it still sees what pods themselves tell.
func (o *podsCommand) readNodes(ctx context.Context, api *clients) ([]*nodeqosv1alpha1.NodeQOSResources, error) {
	list, err := api.listNodes(ctx)
	if errors.Is(err, errForbidden) && !o.watch {
		fmt.Fprintln(o.streams.ErrOut, "Note: only what pods themselves tell is shown:", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o.readOn = true
	objects := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return allTyped(objects)
}

func allTyped(objects []*unstructured.Unstructured) ([]*nodeqosv1alpha1.NodeQOSResources, error) {
	nodes := make([]*nodeqosv1alpha1.NodeQOSResources, 0, len(objects))
	for _, object := range objects {
		node, err := typed(object)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

func (o *podsCommand) readPods(ctx context.Context, api *clients, namespace string) ([]corev1.Pod, error) {
	if o.pod == "" {
		return api.listPods(ctx, namespace, o.selector)
	}
	pod, err := api.getPod(ctx, o.pod)
	if err != nil {
		return nil, err
	}
	return []corev1.Pod{*pod}, nil
}

// show writes rows that are not what was shown of them before.
func (o *podsCommand) show(all []podRow, namespace string) error {
	var rows []podRow
	now := map[subjectOfPod]string{}
	for i := range all {
		row := &all[i]
		key := subjectOfPod{row.Namespace, row.Pod, row.Container, row.Resource}
		now[key] = fmt.Sprint(o.cells(row), row.Node, row.RequestedBy)
		if o.shown[key] != now[key] {
			rows = append(rows, *row)
		}
	}
	o.shown = now
	first := !o.titled
	o.titled = true
	switch {
	case !o.isTable() && (first || len(rows) > 0):
		text, err := documentOf(rows, o.format)
		if err != nil {
			return err
		}
		fmt.Fprint(o.streams.Out, text)
		return nil
	case !o.isTable():
		return nil
	case first && len(rows) == 0 && !o.watch:
		o.sayNone(namespace)
		return nil
	}
	var lines table
	if first {
		lines = append(lines, o.header())
	}
	for i := range rows {
		lines = append(lines, o.cells(&rows[i]))
	}
	fmt.Fprint(o.streams.Out, o.widths.Format(lines, "", gap))
	return nil
}

func (o *podsCommand) sayNone(namespace string) {
	switch {
	case o.pod != "":
		fmt.Fprintf(o.streams.ErrOut, "Pod %s asks for no QoS class, and its node has no QoS-class resources that are known.\n", o.pod)
	case namespace == metav1.NamespaceAll:
		fmt.Fprintln(o.streams.ErrOut, "No pods with QoS-class resources found.")
	default:
		fmt.Fprintf(o.streams.ErrOut, "No pods with QoS-class resources found in %s namespace.\n", namespace)
	}
}

func (o *podsCommand) header() []string {
	header := []string{"POD", "CONTAINER", "RESOURCE", "REQUESTED", "EFFECTIVE", "SOURCE"}
	if o.everywhere {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if o.format == formatWide {
		header = append(header, "REQUESTED BY", "NODE")
	}
	return append(header, "WHY")
}

func (o *podsCommand) cells(row *podRow) []string {
	container := row.Container
	if container == "" {
		container = wholePod
	}
	cells := []string{row.Pod, container, orNothing(row.Resource), classCell(row.Requested), effectiveCell(row), orNothing(row.Source)}
	if o.everywhere {
		cells = append([]string{row.Namespace}, cells...)
	}
	if o.format == formatWide {
		cells = append(cells, orNothing(row.RequestedBy), orNothing(row.Node))
	}
	why := row.Reason
	if row.Message != "" {
		why += ": " + row.Message
	}
	return append(cells, why)
}

func classCell(class *string) string {
	if class == nil {
		return nothing
	}
	return className(*class)
}

func effectiveCell(row *podRow) string {
	if row.unknown {
		return "unknown"
	}
	return classCell(row.Effective)
}
