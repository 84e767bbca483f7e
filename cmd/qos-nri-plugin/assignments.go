// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
)

type assignmentsOptions struct {
	*apiOptions
	namespace, pod string
}

func newAssignmentsCommand() *cobra.Command {
	var watch bool
	var o assignmentsOptions
	cmd := &cobra.Command{
		Use:   "assignments [POD]",
		Short: "Show which pods and containers have which classes, and why",
		Long: `assignments shows the class of every QoS-class resource for every pod and container of this node, as the running plugin
reports it, with the source of the class and the requesting annotation. POD is a pod's UID, or namespace/name.

Sources: container, allocated (an extended resource in the limits), pod, default (the resource's default class), rule NAME (a rule of
the class file), update (changed while running), adopted (the plugin found it running in the class), and "-" for no request and no
default.

Documents (-o json, -o yaml) are messages of the node API: qos.v1alpha1.ListAssignmentsResponse.`,
		Example: `  qos-nri-plugin assignments
  qos-nri-plugin assignments default/web`,
		Args:              atMostOne("POD"),
		ValidArgsFunction: completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.pod = args[0]
			}
			if watch {
				return o.call(cmd, 0, func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error {
					stream, err := client.WatchAssignments(ctx, &qosv1alpha1.WatchAssignmentsRequest{Namespace: o.namespace})
					return follow(o.apiOptions, cmd, stream, err, func(r *qosv1alpha1.WatchAssignmentsResponse) error {
						return o.printSelected(cmd, r.GetAssignments())
					})
				})
			}
			return o.call(cmd, answerTime, func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error {
				list, err := client.ListAssignments(ctx, &qosv1alpha1.ListAssignmentsRequest{Namespace: o.namespace})
				if err != nil {
					return err
				}
				if selected := shell.Select(list, o.pod); o.pod != "" && len(selected.GetPods())+len(selected.GetRefusals()) == 0 {
					return shell.NoPod(list, o.pod)
				}
				return o.printSelected(cmd, list)
			})
		},
	}
	o.apiOptions = newAPIOptions(cmd)
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "only pods of this namespace")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the table again at every change, until interrupted")
	return cmd
}

func (o *assignmentsOptions) printSelected(cmd *cobra.Command, list *qosv1alpha1.ListAssignmentsResponse) error {
	selected := shell.Select(list, o.pod)
	return o.print(cmd, selected, func() string { return shell.Assignments(selected) })
}
