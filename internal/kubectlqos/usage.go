// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
)

// maxNotes is the maximum number of notes on nodes or pods that a command prints at once.
const maxNotes = 10

// firstNotes returns a line for each of the first maxNotes notes, and one that counts the rest. `others` says how to
// see the rest.
func firstNotes(notes []string, others string) string {
	var b strings.Builder
	for _, note := range notes[:min(len(notes), maxNotes)] {
		fmt.Fprintf(&b, "Note: %s\n", note)
	}
	if more := len(notes) - maxNotes; more > 0 {
		fmt.Fprintf(&b, "Note: similar notes that are left out: %d; %s\n", more, others)
	}
	return b.String()
}

// errNoNode is the error if no node answers.
var errNoNode = errors.New("no node has answered; the notes above have the reasons")

type usageCommand struct {
	*cluster
	output
	node, pluginNamespace string
	view                  usageView
	once                  bool
	interval              time.Duration
	notes                 shown
}

func newUsageCommand(c *cluster) *cobra.Command {
	o := &usageCommand{cluster: c, notes: shown{}}
	cmd := &cobra.Command{
		Use:   "usage [NODE]",
		Short: "Show what classes and containers use: cache, memory bandwidth, block I/O",
		Long: `usage measures what the classes of each node use, or those of NODE, and shows it again at each interval until interrupted.
With --by-node it adds up the classes of each node. With --containers it also shows each container. Values per second are averages
over the interval. WAITING and STALLED are the shares of the time in which some or all tasks of a container waited for I/O, added up
over the containers of a class. PART is the cache or the disk that has the values.

It reads the usage from the plugin's pod of each node, with your right to forward ports there (pods/portforward).

Documents (-o json, yaml, …) have "items" with node, resource, class and measurements; items of containers also have namespace,
pod, container (missing for the whole pod) and id. Their values whose name ends in "_total" are cumulative.`,
		Example: `  kubectl qos top usage
  kubectl qos top usage --by-node --sort-by cache
  kubectl qos top usage node-1 --once --containers --sort-by memory`,
		Args:              atMostOneNode,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				o.node, err = nameOf(args[0], "node", "nodes", "no")
			}
			switch orders := tables.Orders(); {
			case err != nil:
			case o.view.sortBy != "" && !slices.Contains(orders, o.view.sortBy):
				err = fmt.Errorf("--sort-by %q is not one of %s", o.view.sortBy, strings.Join(orders, ", "))
			case o.interval < time.Second:
				err = fmt.Errorf("--interval %s is shorter than 1s", o.interval)
			}
			if err != nil {
				return program.UsageError(cmd, err)
			}
			if err := o.read(cmd); err != nil {
				return err
			}
			if o.view.byNode && o.documents != nil {
				return program.UsageError(cmd, errors.New("--by-node works for tables only; remove it, or -o"))
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd, false)
	cmd.Flags().BoolVar(&o.view.byNode, "by-node", false, "Add up the classes of each node.")
	cmd.Flags().BoolVar(&o.view.containers, "containers", false, "Also show containers and pods.")
	cmd.Flags().StringVar(&o.view.sortBy, "sort-by", "", "Order by a column, largest first. One of: ("+strings.Join(tables.Orders(), ", ")+").")
	cmd.Flags().DurationVar(&o.interval, "interval", 5*time.Second, "Time between two measurements, at least 1s.")
	cmd.Flags().BoolVar(&o.once, "once", false, "Show the usage of one interval, then end; with -o json or yaml, show one measurement.")
	c.addPluginNamespace(cmd, &o.pluginNamespace)
	completeFlag(cmd, "sort-by", cobra.FixedCompletions(tables.Orders(), noFiles))
	return cmd
}

// run queries the nodes once in each interval. It prints a table of the usage between two queries, or each answer as a
// document.
func (o *usageCommand) run(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}

	separator := ""
	for before := nodesUsage(nil); ; {
		now, err := o.ask(ctx, api)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted
		case err != nil:
			return err
		}

		if isTable := o.documents == nil; !isTable || before != nil {
			if isTable {
				fmt.Fprint(o.streams.Out, separator)
				separator = program.Separator(o.streams.Out)
			}
			if err := o.show(before, now); err != nil || o.once {
				return err
			}
		}
		before = now
		o.pause(ctx, o.interval)
	}
}

// ask returns the usage of the nodes that answer, and prints notes on nodes that do not answer.
func (o *usageCommand) ask(ctx context.Context, api *clients) (nodesUsage, error) {
	pods, err := api.pluginPods(ctx, o.pluginNamespace, o.node)
	if err != nil {
		return nil, err
	}
	answers, problems := askEach(pods, func(pod *corev1.Pod) (nodeUsage, error) { return api.usageOf(ctx, pod) })
	nodes := nodesUsage{}
	var notes []string
	for i := range pods {
		node := pods[i].Spec.NodeName
		lacks := []string{fmt.Sprint(problems[i])}
		if problems[i] == nil {
			nodes[node] = answers[i]
			lacks = answers[i].lacks(o.view.containers)
		}
		for _, note := range lacks {
			notes = append(notes, node+": "+note)
		}
	}
	if len(notes) > 0 && ctx.Err() == nil {
		o.notes.printAgain(o.streams.ErrOut, "", firstNotes(notes, "see those of one node with: kubectl qos top usage NODE"))
	}
	if len(nodes) == 0 {
		return nil, errNoNode
	}
	return nodes, nil
}

// show prints the usage between the last two queries as tables. For a document format, it prints only the answers to
// the last query.
func (o *usageCommand) show(before, now nodesUsage) error {
	if o.documents != nil {
		return printList(&o.output, o.streams.Out, now.items(o.view.containers))
	}
	fmt.Fprint(o.streams.Out, usageTables(before, now, o.view))
	return nil
}
