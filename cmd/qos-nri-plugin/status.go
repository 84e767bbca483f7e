// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
)

func newStatusCommand() *cobra.Command {
	var watch bool
	var api *apiOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the QoS-class resources of this node, what is in use, and how the plugin is",
		Long: `status asks the running plugin which QoS-class resources and classes this node has, how many of each are in use,
which resources the machine does not have and why, and which class files are in force.

Documents (-o json, -o yaml) are messages of the node API: qos.v1alpha1.StatusResponse.`,
		Example: `  qos-nri-plugin status
  qos-nri-plugin status -o json | jq '.resources.containerQosResources[].classes[] | {name, inUse, capacity}'`,
		Args:              program.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return api.call(cmd, func(_ context.Context, client qosv1alpha1.NodeQOSClient) error {
				if watch {
					return api.watchStatus(cmd, client)
				}
				return api.printStatus(cmd, client)
			})
		},
	}
	api = newAPIOptions(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again at every change, until interrupted")
	return cmd
}

func (o *apiOptions) printStatus(cmd *cobra.Command, client qosv1alpha1.NodeQOSClient) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), answerTime)
	defer cancel()
	state, err := client.Status(ctx, &qosv1alpha1.StatusRequest{})
	if err != nil {
		return err
	}
	return o.print(cmd, state, func() string { return shell.Status(state) })
}

func (o *apiOptions) watchStatus(cmd *cobra.Command, client qosv1alpha1.NodeQOSClient) error {
	stream, err := client.Watch(cmd.Context(), &qosv1alpha1.WatchRequest{})
	if err != nil {
		return err
	}
	return o.follow(cmd, func() (proto.Message, string, error) {
		response, err := stream.Recv()
		return response.GetStatus(), shell.Status(response.GetStatus()), err
	})
}
