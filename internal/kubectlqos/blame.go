// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
)

type blameCommand struct {
	*cluster
	output
	// `node` is empty if the argument is a pod.
	node, pod, container, pluginNamespace string
	since                                 time.Duration
}

func newBlameCommand(c *cluster) *cobra.Command {
	o := &blameCommand{cluster: c}
	cmd := &cobra.Command{
		Use:   "blame POD|node/NODE",
		Short: "Show when a pod had to wait, and which containers then used more of the same resource",
		Long: `blame shows the intervals of the last 15 minutes in which the containers of a pod, or of a node, waited for I/O, memory or a CPU
more than otherwise, or had less memory bandwidth or cache. For each interval it names the causes that the container has itself, e.g. its
own CPU limit, and the containers that used more of the same resource in this interval, the best fit first. That is a correlation, and no
proof. If a class of the node limits this use, it shows the command that puts the container into the class. If no container fits, it
names none.

It asks the plugin's pod of the node, with your right to forward ports there (pods/portforward). The plugin must run with
--history-interval, on a node with cgroup v2.

Documents (-o json, yaml, …) have "items" with node, namespace, pod, podUid, container and findings, which have resource, part, from,
to, before, during, always, own and culprits.`,
		Example: `  kubectl qos blame db-0 -n shop
  kubectl qos blame db-0 -n shop --container main --since 5m
  kubectl qos blame node/node-1 -o yaml`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: c.completeBlamed,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return program.UsageError(cmd, err)
			}
			if err := o.read(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd, false)
	cmd.Flags().StringVarP(&o.container, "container", "c", "", "Show only this container of the pod.")
	cmd.Flags().DurationVar(&o.since, "since", 0, "Show only intervals that ended at most this long ago, e.g. 5m; 0 for all that is recorded.")
	c.addPluginNamespace(cmd, &o.pluginNamespace)
	completeFlag(cmd, "container", c.completeContainer)
	return cmd
}

// check stores the pod or node of the arguments. It returns an error if the command line is invalid.
func (o *blameCommand) check(args []string) (err error) {
	switch {
	case len(args) != 1:
		return fmt.Errorf("name one POD, or a node as node/NODE; there are %d arguments", len(args))
	case o.since < 0:
		return fmt.Errorf("--since %s is negative", o.since)
	}
	if strings.HasPrefix(args[0], "node/") || strings.HasPrefix(args[0], "nodes/") || strings.HasPrefix(args[0], "no/") {
		if o.container != "" {
			return errors.New("--container selects a container of a pod; name a POD, or remove it")
		}
		o.node, err = nameOf(args[0], "node", "nodes", "no")
		return err
	}
	o.pod, err = podName(args[0])
	return err
}

func (o *blameCommand) run(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	query, node := url.Values{}, o.node
	if o.since > 0 {
		query.Set("since", o.since.String())
	}
	if o.pod != "" {
		pod, err := api.getRecordedPod(ctx, o.pod)
		if err != nil {
			return err
		}
		node = pod.Spec.NodeName
		selectPod(query, pod, o.container)
	}

	var answer reports.Blame
	if err := api.askHistory(ctx, o.pluginNamespace, node, "/blame", query, &answer); err != nil {
		return err
	}
	for i := range answer.Sufferers {
		answer.Sufferers[i].Node = node
	}
	return o.show(node, answer)
}

func (o *blameCommand) show(node string, answer reports.Blame) error {
	if answer.Incomplete > 0 {
		fmt.Fprintf(o.streams.ErrOut, "The history of node %s has no room for %d containers, or for some of their disks; they can be missing here.\n", node,
			answer.Incomplete)
	}
	if o.documents != nil {
		return printList(&o.output, o.streams.Out, answer.Sufferers)
	}
	if len(answer.Sufferers) == 0 {
		fmt.Fprintf(o.streams.Out, "No container of node %s had to wait more than otherwise %s.\n", node, between(answer.From, answer.To))
		return nil
	}
	for i := range answer.Sufferers {
		if i > 0 {
			fmt.Fprintln(o.streams.Out)
		}
		for _, line := range suffererLines(&answer.Sufferers[i], &answer) {
			fmt.Fprintln(o.streams.Out, program.Printable(line))
		}
	}
	return nil
}

// getRecordedPod returns a pod. It returns an error if no plugin can have recorded the pod, because it has no node yet.
func (c *clients) getRecordedPod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod, err := c.getPod(ctx, name)
	if err == nil && pod.Spec.NodeName == "" {
		err = fmt.Errorf("pod %q has no node yet, so nothing is recorded of it", name)
	}
	return pod, err
}

// selectPod adds the selection of a pod to a query about the history. If `container` is empty, it selects all containers of the pod.
func selectPod(query url.Values, pod *corev1.Pod, container string) {
	query.Set("namespace", pod.Namespace)
	query.Set("pod", pod.Name)
	query.Set("podUid", podspec.UID(pod))
	query.Set("container", container)
}

// askHistory asks the plugin of a node about its history. Its errors include the remedy.
func (c *clients) askHistory(ctx context.Context, pluginNamespace, node, path string, query url.Values, answer any) error {
	plugins, err := c.pluginPods(ctx, pluginNamespace, node)
	if err != nil {
		return err
	}
	err = c.askPlugin(ctx, &plugins[0], path+"?"+query.Encode(), answer)
	var failed podError
	switch {
	case errors.As(err, &failed) && strings.Contains(failed.text, "404 page not found"):
		return fmt.Errorf("node %q: the plugin of this node is too old for this command; update it", node)
	case err != nil:
		return fmt.Errorf("node %q: %w", node, err)
	}
	return nil
}

func (c *cluster) completeBlamed(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	if strings.HasPrefix(begun, "node/") {
		nodes, directive := c.completeNode(cmd, args, "")
		return withType("node", nodes), directive
	}
	return c.completePod(cmd, args, begun)
}
