// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/convert"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type nodesCommand struct {
	*cluster
	output
	node  string
	watch bool

	table *tablePrinter
	shown shown
	// noted is the last warning of noteScopes.
	noted string
}

func newNodesCommand(c *cluster) *cobra.Command {
	o := &nodesCommand{cluster: c, shown: shown{}}
	cmd := &cobra.Command{
		Use:     "nodes [NODE]",
		Aliases: []string{"node", "no"},
		Short:   "Show the QoS-class resources and classes of nodes, and their use",
		Long: `nodes shows a line for each node and QoS-class resource, with its classes as CLASS (IN USE/CAPACITY). With NODE it
describes one node: resources of pods and of containers, what the node lacks and why, and conditions that are not True.
-o wide adds the holders of the classes of one node, or the runtime and plugin of all nodes.

A class marked * is the default, for containers and pods without a request. A degraded class is enforced only in part. A
draining class is no longer configured, and is removed when its last holder ends.

Documents (-o json, yaml, …) are the NodeQOSResources of the cluster.`,
		Example: `  kubectl qos nodes
  kubectl qos nodes node-1 -o wide
  kubectl qos nodes -o jsonpath='{.items[*].metadata.name}'`,
		Args:              atMostOneNode,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				if o.node, err = nameOf(args[0], "node", "nodes", "no"); err != nil {
					return program.UsageError(cmd, err)
				}
			}
			if err := o.read(cmd); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	o.addFlags(cmd, true)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After the table, show every change until interrupted.")
	return cmd
}

// atMostOneNode refuses more than one argument.
func atMostOneNode(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return program.UsageError(cmd, fmt.Errorf("at most one NODE can be given, not %d", len(args)))
	}
	return nil
}

func (o *nodesCommand) run(cmd *cobra.Command) error {
	o.table = newTablePrinter(o.wide(),
		"NODE", "READY", "RESOURCE", "+SCOPE", "+MUTABLE", "+RUNTIME", "+PLUGIN", "+CONFIG", "CLASSES (IN USE/CAPACITY)")
	api, err := o.connect()
	if err != nil {
		return err
	}

	if err := o.showFirst(cmd.Context(), api); err != nil || !o.watch {
		return err
	}

	w := newNodeWatch(api, o.node, o.streams.ErrOut)
	return w.follow(cmd.Context(), func() error { return o.show(w.nodes()) })
}

// showFirst prints the nodes as they are before a watch begins. A document format prints all of them as one document.
func (o *nodesCommand) showFirst(ctx context.Context, api *clients) error {
	switch {
	case o.node != "":
		object, err := api.getNode(ctx, o.node)
		if err != nil {
			return err
		}
		return o.show([]unstructured.Unstructured{*object})
	case o.documents != nil:
		list, err := api.listNodes(ctx)
		if err != nil {
			return err
		}
		changed(&o.shown, list.Items, nameAndVersion)
		return o.documents.PrintObj(list, o.streams.Out)
	}

	nodes, err := api.summaries(ctx)
	switch {
	case err != nil:
		return err
	case len(nodes) == 0 && !o.watch:
		fmt.Fprintln(o.streams.ErrOut, "No node reports QoS-class resources; check that qos-kubelet-shim runs.")
		return nil
	}
	return o.showRows(nodes)
}

func nameAndVersion(object *unstructured.Unstructured) (key, text string) {
	return object.GetName(), object.GetResourceVersion()
}

// show prints the objects that are new or have changed, as pages, rows or documents.
func (o *nodesCommand) show(objects []unstructured.Unstructured) error {
	if o.documents != nil {
		for _, object := range changed(&o.shown, objects, nameAndVersion) {
			if err := o.documents.PrintObj(&object, o.streams.Out); err != nil {
				return err
			}
		}
		return nil
	}

	nodes, err := allTyped(objects)
	if err != nil {
		return err
	}
	if o.node == "" {
		return o.showRows(nodes)
	}
	for i := range nodes {
		o.shown.printAgain(o.streams.Out, nodes[i].Name, nodePage(&nodes[i], o.wide(), o.now()))
	}
	return nil
}

func (o *nodesCommand) showRows(nodes []nodeqosv1alpha1.NodeQOSResources) error {
	rows := changed(&o.shown, nodeRows(nodes, o.now()), func(row *[]string) (key, text string) {
		return (*row)[0] + " " + (*row)[2], fmt.Sprint(*row)
	})
	text, err := o.table.format(rows)
	fmt.Fprint(o.streams.Out, text)
	o.noteScopes(nodes)
	return err
}

// noteScopes warns about a resource that has different scopes on two nodes. With --watch, it does not repeat the warning.
func (o *nodesCommand) noteScopes(nodes []nodeqosv1alpha1.NodeQOSResources) {
	_, err := convert.KnownFromNodes(nodes)
	problems := classes.SplitErrors(err)
	if len(problems) == 0 || problems[0].Error() == o.noted {
		return
	}

	o.noted = problems[0].Error()
	note := "Note: " + o.noted
	if len(problems) > 1 {
		note += fmt.Sprintf(" (and %d more like this)", len(problems)-1)
	}
	fmt.Fprintln(o.streams.ErrOut, program.Printable(note))
}
