// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/columns"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// nodesCommand is one run of "kubectl qos nodes".
type nodesCommand struct {
	*cluster
	printing *genericclioptions.PrintFlags
	node     string
	watch    bool
	// What was shown of a watch: texts or resource versions, by what they are of.
	widths columns.Widths
	shown  map[string]string
}

func newNodesCommand(c *cluster) *cobra.Command {
	o := &nodesCommand{cluster: c, printing: genericclioptions.NewPrintFlags(""), shown: map[string]string{}}
	cmd := &cobra.Command{
		Use:     "nodes [NODE]",
		Aliases: []string{"node", "no"},
		Short:   "Show which QoS-class resources and classes nodes have, and what is in use",
		Long: `nodes shows a line for each node and QoS-class resource, with its classes as CLASS (IN USE/CAPACITY). With NODE it
describes one node: resources of pods and of containers, what the node lacks and why, and conditions that are not True.
With -o wide there is more: who has which class of that node, or what nodes run.

A class marked * is given to what asks for nothing. A degraded class is enforced in part only. A draining one is no longer
configured, and gone when nobody has it any more.

Documents (-o json, yaml, …) are the NodeQOSResources of the cluster.`,
		Example: `  kubectl qos nodes
  kubectl qos nodes node-1 -o wide
  kubectl qos nodes -o jsonpath='{.items[*].metadata.name}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return program.UsageError(cmd, fmt.Errorf("one NODE is the most, not %d", len(args)))
			}
			return nil
		},
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				if o.node, err = nodeName(args[0]); err != nil {
					return program.UsageError(cmd, err)
				}
			}
			return o.run(cmd)
		},
	}
	o.printing.AddFlags(cmd)
	formats := append([]string{formatWide}, o.printing.AllowedFormats()...)
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
	completeFlag(cmd, "output", cobra.FixedCompletions(formats, noFiles))
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After that, show what changes, until interrupted.")
	return cmd
}

func (o *nodesCommand) isTable() bool {
	templated := o.printing.TemplatePrinterFlags.TemplateArgument
	return (*o.printing.OutputFormat == "" && *templated == "") || *o.printing.OutputFormat == formatWide
}

func (o *nodesCommand) wide() bool { return *o.printing.OutputFormat == formatWide }

func (o *nodesCommand) run(cmd *cobra.Command) error {
	if !o.isTable() {
		if _, err := o.printing.ToPrinter(); err != nil {
			return program.UsageError(cmd, fmt.Errorf("--output: %w", err))
		}
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	objects, whole, err := o.look(cmd.Context(), api)
	if err != nil {
		return err
	}
	if err := o.show(objects, whole); err != nil || !o.watch {
		return err
	}
	w := newNodeWatch(api, o.node, o.streams.ErrOut)
	return w.follow(cmd.Context(), func() error {
		return o.show(w.nodes(), nil)
	})
}

// look gets the objects, and the whole of the API server's answer.
func (o *nodesCommand) look(ctx context.Context, api *clients) ([]*unstructured.Unstructured, runtime.Object, error) {
	if o.node != "" {
		object, err := api.getNode(ctx, o.node)
		return []*unstructured.Unstructured{object}, object, err
	}
	list, err := api.listNodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	objects := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		objects = append(objects, &list.Items[i])
	}
	return objects, list, nil
}

// show writes what was not shown yet. Without the whole of an answer, as in a watch, documents are of each object that changed.
func (o *nodesCommand) show(objects []*unstructured.Unstructured, whole runtime.Object) error {
	if !o.isTable() {
		return o.showDocuments(objects, whole)
	}
	nodes := make([]*nodeqosv1alpha1.NodeQOSResources, 0, len(objects))
	for _, object := range objects {
		node, err := typed(object)
		if err != nil {
			return err
		}
		nodes = append(nodes, node)
	}
	if o.node != "" {
		return o.showPage(nodes)
	}
	return o.showTable(nodes)
}

func (o *nodesCommand) showDocuments(objects []*unstructured.Unstructured, whole runtime.Object) error {
	printer, err := o.printing.ToPrinter()
	if err != nil {
		return err
	}
	for _, object := range objects {
		changed := o.shown[object.GetName()] != object.GetResourceVersion()
		o.shown[object.GetName()] = object.GetResourceVersion()
		if whole != nil || !changed {
			continue
		}
		if err := printer.PrintObj(object, o.streams.Out); err != nil {
			return err
		}
	}
	if whole == nil {
		return nil
	}
	return printer.PrintObj(whole, o.streams.Out)
}

func (o *nodesCommand) showPage(nodes []*nodeqosv1alpha1.NodeQOSResources) error {
	for _, node := range nodes {
		var page bytes.Buffer
		writeNodePage(&page, node, o.wide())
		before := o.shown[node.Name]
		if before == page.String() {
			continue
		}
		o.shown[node.Name] = page.String()
		if before != "" {
			fmt.Fprintln(o.streams.Out)
		}
		fmt.Fprint(o.streams.Out, page.String())
	}
	return nil
}

// showTable shows rows that were not shown before, of one node and resource each.
func (o *nodesCommand) showTable(nodes []*nodeqosv1alpha1.NodeQOSResources) error {
	first := len(o.widths) == 0
	if first && len(nodes) == 0 && !o.watch {
		fmt.Fprintln(o.streams.ErrOut, "No node tells of QoS-class resources. Does qos-kubelet-shim run?")
		return nil
	}
	var rows table
	if first {
		rows = append(rows, nodeHeader(o.wide()))
	}
	kept := map[string]string{}
	for _, row := range nodeRows(nodes, o.wide()) {
		key, text := row[0]+" "+row[2], fmt.Sprint(row)
		if o.shown[key] != text {
			rows = append(rows, row)
		}
		kept[key] = text
	}
	o.shown = kept
	fmt.Fprint(o.streams.Out, o.widths.Format(rows, "", gap))
	return nil
}
