// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
)

func newStatusCommand() *cobra.Command {
	var watch bool
	var api *apiOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the QoS-class resources of this node, their use, and the state of the plugin",
		Long: `status shows the QoS-class resources and classes of this node, the number of assignments of each class, the unavailable
resources with the reason, and the class files in force, as the running plugin reports them.

Documents (-o json, -o yaml) are messages of the node API: qos.v1alpha1.StatusResponse.`,
		Example: `  qos-nri-plugin status
  qos-nri-plugin status -o json | jq '.resources.containerQosResources[].classes[] | {name, inUse, capacity}'`,
		Args:              program.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return api.call(cmd, 0, func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error {
					stream, err := client.Watch(ctx, &qosv1alpha1.WatchRequest{})
					return follow(api, cmd, stream, err, func(r *qosv1alpha1.WatchResponse) error {
						return api.printStatus(cmd, r.GetStatus())
					})
				})
			}
			return api.call(cmd, answerTime, func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error {
				state, err := client.Status(ctx, &qosv1alpha1.StatusRequest{})
				if err != nil {
					return err
				}
				return api.printStatus(cmd, state)
			})
		},
	}
	api = newAPIOptions(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again at every change, until interrupted")
	return cmd
}

func (o *apiOptions) printStatus(cmd *cobra.Command, state *qosv1alpha1.StatusResponse) error {
	return o.print(cmd, state, func() string { return shell.Status(state) })
}
