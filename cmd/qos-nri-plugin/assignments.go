// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
)

// assignmentsOptions say whose assignments to show.
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
		Long: `assignments asks the running plugin for the class that every pod and container of this node has of every QoS-class
resource, where the class came from, and which annotation asked for it. POD is a pod's UID, or namespace/name.

Sources: container, allocated (an extended resource in the limits), pod, default (the resource's), update (a change of
what runs), adopted (it ran in the class when the plugin found it), and "-" for nothing asked and no default.

Documents (-o json, -o yaml) are messages of the node API: qos.v1alpha1.ListAssignmentsResponse.`,
		Example: `  qos-nri-plugin assignments
  qos-nri-plugin assignments default/web`,
		Args:              atMostOnePod,
		ValidArgsFunction: completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.pod = args[0]
			}
			return o.call(cmd, func(_ context.Context, client qosv1alpha1.NodeQOSClient) error {
				if watch {
					return o.watch(cmd, client)
				}
				return o.show(cmd, client)
			})
		},
	}
	o.apiOptions = newAPIOptions(cmd)
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "only pods of this namespace")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show them again at every change, until interrupted")
	return cmd
}

func atMostOnePod(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return program.UsageError(cmd, fmt.Errorf("one POD is the most, not %d", len(args)))
	}
	return nil
}

// show is an error when a pod was named and is not there.
func (o *assignmentsOptions) show(cmd *cobra.Command, client qosv1alpha1.NodeQOSClient) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
	defer cancel()
	list, err := client.ListAssignments(ctx, &qosv1alpha1.ListAssignmentsRequest{Namespace: o.namespace})
	if err != nil {
		return err
	}
	selected := o.selected(list)
	if o.pod != "" && len(selected.GetPods())+len(selected.GetRefusals()) == 0 {
		return shell.NoPod(list, o.pod)
	}
	return o.print(cmd, selected, func() string { return shell.Assignments(selected) })
}

func (o *assignmentsOptions) watch(cmd *cobra.Command, client qosv1alpha1.NodeQOSClient) error {
	stream, err := client.WatchAssignments(cmd.Context(), &qosv1alpha1.WatchAssignmentsRequest{Namespace: o.namespace})
	if err != nil {
		return err
	}
	return o.follow(cmd, func() (proto.Message, string, error) {
		response, err := stream.Recv()
		selected := o.selected(response.GetAssignments())
		return selected, shell.Assignments(selected), err
	})
}

func (o *assignmentsOptions) selected(list *qosv1alpha1.ListAssignmentsResponse) *qosv1alpha1.ListAssignmentsResponse {
	return &qosv1alpha1.ListAssignmentsResponse{
		Pods: shell.SelectPods(list, o.pod), Refusals: shell.SelectRefusals(list, o.pod),
		Evictions: shell.SelectEvictions(list, o.pod), Synchronized: list.GetSynchronized(),
	}
}
