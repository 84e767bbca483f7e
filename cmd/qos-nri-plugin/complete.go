// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type nodeState struct {
	status *qosv1alpha1.StatusResponse
	list   *qosv1alpha1.ListAssignmentsResponse
}

// stateForCompletion asks the plugin for its state. If the plugin does not answer, the command offers no completions.
func stateForCompletion(cmd *cobra.Command) nodeState {
	var state nodeState
	socket, err := cmd.Flags().GetString("api-socket")
	if err != nil {
		return state
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()

	err = (&apiOptions{socket: socket}).connect(ctx, func(ctx context.Context, client qosv1alpha1.NodeQOSClient) (err error) {
		if state.status, err = client.Status(ctx, &qosv1alpha1.StatusRequest{}); err != nil {
			return err
		}
		state.list, err = client.ListAssignments(ctx, &qosv1alpha1.ListAssignmentsRequest{})
		return err
	})
	if err != nil {
		return nodeState{}
	}
	return state
}

func completePod(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return podWords(stateForCompletion(cmd), toComplete), cobra.ShellCompDirectiveNoFileComp
}

func podWords(state nodeState, begun string) []string {
	var words []string
	for _, pod := range state.list.GetPods() {
		if strings.HasPrefix(shell.PodName(pod), begun) {
			words = append(words, shell.PodName(pod))
		} else if strings.HasPrefix(pod.GetUid(), begun) {
			words = append(words, pod.GetUid())
		}
	}
	return words
}

func completeUpdate(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return completePod(cmd, nil, toComplete)
	case 1:
		state := stateForCompletion(cmd)
		words := append(containerWords(state, args[0]), pairWords(state.status.GetResources().GetPodQosResources(), toComplete)...)
		return words, cobra.ShellCompDirectiveNoFileComp
	case 2:
		words := pairWords(stateForCompletion(cmd).status.GetResources().GetContainerQosResources(), toComplete)
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func containerWords(state nodeState, pod string) []string {
	var words []string
	for _, found := range shell.Select(state.list, pod).GetPods() {
		words = append(words, shell.ContainerNames(found)...)
	}
	return words
}

// pairWords completes the last pair in a list of "resource=class" pairs. It offers only mutable resources that no
// earlier pair has.
func pairWords(resources []*qosv1alpha1.QOSResourceInfo, begun string) []string {
	var offers []classes.Pair
	for _, resource := range resources {
		for _, class := range resource.GetClasses() {
			if resource.GetMutable() && !class.GetDraining() {
				offers = append(offers, classes.Pair{Resource: resource.GetName(), Class: class.GetName()})
			}
		}
	}
	return program.CompletePairs(offers, nil, begun)
}
