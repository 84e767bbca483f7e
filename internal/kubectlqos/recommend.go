// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
)

type recommendCommand struct {
	*cluster
	output
	workload                   workload
	container, pluginNamespace string
}

func newRecommendCommand(c *cluster) *cobra.Command {
	o := &recommendCommand{cluster: c}
	cmd := &cobra.Command{
		Use:   "recommend POD|TYPE/NAME",
		Short: "Show which class fits what a workload uses, or which class would have to be added",
		Long: `recommend compares what the containers of a pod have used in the last 15 minutes with the limits of the node's classes: block
I/O, memory.high, memory bandwidth and cache. Among the classes whose limits a container rarely reaches, it shows the one of which the
container leaves the least unused. If no class fits, it shows the limits that a class would need. TYPE is deployment, statefulset or
daemonset. It changes nothing.

If a container was at a limit of its class, it would use more, but how much is unknown. recommend then shows the next larger class; ask
again after the change. If too little is recorded, recommend says so.

With -o yaml, it prints a class file with the classes that would have to be added, to be merged into those of the nodes. Comments say which
classes of the nodes fit. Other documents (-o json, …) have "items" with node, namespace, pod, podUid, container (missing for the whole
pod), resource, presentClass, from, to, problem, outcome (fits, add or unused), class, figures, left, held, full, mutable and classFile.

It asks the plugin's pod of the node, with your right to forward ports there (pods/portforward). The plugin must run with
--history-interval, on a node with cgroup v2.`,
		Example: `  kubectl qos recommend db-0 -n shop
  kubectl qos recommend statefulset/db -n shop --container main
  kubectl qos recommend db-0 -n shop -o yaml > class.yaml`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: c.completeWorkload,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) != 1 {
				return program.UsageError(cmd, fmt.Errorf("name one POD, or a workload as TYPE/NAME; there are %d arguments", len(args)))
			}
			if o.workload, err = workloadOf(args[0]); err != nil {
				return program.UsageError(cmd, err)
			}
			if err := o.read(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd, false)
	cmd.Flags().StringVarP(&o.container, "container", "c", "", "Show only this container.")
	c.addPluginNamespace(cmd, &o.pluginNamespace)
	completeFlag(cmd, "container", c.completeContainer)
	return cmd
}

func (o *recommendCommand) run(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	pods, err := o.workload.pods(ctx, api)
	if err != nil {
		return err
	}

	answers, problems := askEach(pods, func(pod *corev1.Pod) (reports.Recommendations, error) { return o.ask(ctx, api, pod) })
	if len(pods) == 1 && problems[0] != nil {
		return problems[0]
	}
	var all []reports.Recommendation
	var notes []string
	for i := range pods {
		if problems[i] != nil {
			notes = append(notes, program.Printable(fmt.Sprintf("pod %s: %s", pods[i].Name, problems[i])))
		}
		all = append(all, answers[i].Recommendations...)
	}
	fmt.Fprint(o.streams.ErrOut, firstNotes(notes, "see that of one pod with: kubectl qos recommend POD"))
	if len(all) == 0 {
		return fmt.Errorf("%s %q: no node has an answer; the notes above have the reasons", o.workload.of.name, o.workload.name)
	}
	return o.show(all)
}

// ask asks the plugin on the node of a pod.
func (o *recommendCommand) ask(ctx context.Context, api *clients, pod *corev1.Pod) (answer reports.Recommendations, err error) {
	query := url.Values{}
	selectPod(query, pod, o.container)
	err = api.askHistory(ctx, o.pluginNamespace, pod.Spec.NodeName, "/recommend", query, &answer)
	for i := range answer.Recommendations {
		answer.Recommendations[i].Node = pod.Spec.NodeName
	}
	return answer, err
}

func (o *recommendCommand) show(all []reports.Recommendation) error {
	switch {
	case *o.flags.OutputFormat == formatYAML:
		text, err := classFileOf(all)
		if err == nil {
			_, err = o.streams.Out.Write(text)
		}
		return err
	case o.documents != nil:
		return printList(&o.output, o.streams.Out, all)
	}

	table := newTablePrinter(o.wide(), "POD", "CONTAINER", "RESOURCE", "CLASS", "FITS", "LEFT OVER", "+NODE", "WHY")
	var rows [][]string
	var commands []string
	added := false
	for i := range all {
		rows = append(rows, recommendedRow(&all[i]))
		added = added || all[i].ClassFile != nil
		if command := recommendedCommand(&all[i]); command != "" {
			commands = append(commands, command)
		}
	}
	text, err := table.format(rows)
	if err != nil {
		return err
	}
	fmt.Fprint(o.streams.Out, text)
	if len(commands) > 0 {
		fmt.Fprintln(o.streams.Out, "\nTo change a running container, or with --pod all of its pod:")
	}
	for _, command := range commands {
		fmt.Fprintln(o.streams.Out, "  "+program.Printable(command))
	}
	if added {
		fmt.Fprintln(o.streams.Out, "\nWith -o yaml, this command prints a class file with the classes to add.")
	}
	return nil
}
