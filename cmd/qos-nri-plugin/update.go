// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// change is a requested change of classes. It changes a container or, if `container` is empty, the pod itself.
type change struct {
	pod, container string
	pairs          []classes.Pair
}

func newUpdateCommand() *cobra.Command {
	var api *apiOptions
	cmd := &cobra.Command{
		Use:   "update POD [CONTAINER] RESOURCE=CLASS[,RESOURCE=CLASS...]",
		Short: "Change classes of a running container or pod, all of them or none",
		Long: `update changes the classes of a running container through the running plugin. Without CONTAINER it changes the classes that
the pod itself has. It returns when the new classes are verified. If one of them cannot be changed, none is changed.

POD is a pod's UID, or namespace/name. The short names rdt and blockio may be used. An empty class (rdt=) is the system default,
which enforces nothing.

Documents (-o json, -o yaml) are messages of the node API: qos.v1alpha1.UpdateContainerQOSResourcesResponse.`,
		Example: `  qos-nri-plugin update default/web main rdt=gold
  qos-nri-plugin update default/web main rdt=gold,blockio=high-prio
  qos-nri-plugin update default/web qos.noderesource.dev/pod-blockio=slow`,
		ValidArgsFunction: completeUpdate,
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseChange(args)
			if err != nil {
				return program.UsageError(cmd, err)
			}
			err = api.call(cmd, changeTime, func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error {
				return api.update(ctx, cmd, client, wanted)
			})
			if errors.Is(err, errNoAnswer) {
				return fmt.Errorf("%w, so it is not known whether the class was changed; to see the current class, run: qos-nri-plugin assignments", err)
			}
			return err
		},
	}
	api = newAPIOptions(cmd)
	return cmd
}

func parseChange(args []string) (change, error) {
	if len(args) != 2 && len(args) != 3 {
		return change{}, fmt.Errorf("2 or 3 arguments are required, not %d: POD [CONTAINER] RESOURCE=CLASS", len(args))
	}

	wanted := change{pod: args[0]}
	if len(args) == 3 {
		wanted.container = args[1]
	}
	var err error
	wanted.pairs, err = classes.ParsePairs(args[len(args)-1])
	if err == nil && len(wanted.pairs) == 0 {
		err = errors.New("the request is empty; write resource=class[,resource=class...]")
	}
	return wanted, err
}

func (o *apiOptions) update(ctx context.Context, cmd *cobra.Command, client qosv1alpha1.NodeQOSClient, wanted change) error {
	list, err := client.ListAssignments(ctx, &qosv1alpha1.ListAssignmentsRequest{})
	if err != nil {
		return err
	}
	pod, err := shell.SelectPod(list, wanted.pod)
	if err != nil {
		return err
	}
	if wanted.container != "" {
		if err := shell.CheckContainer(pod, wanted.container); err != nil {
			return err
		}
	}

	notice := time.AfterFunc(noticeTime, func() {
		fmt.Fprintf(cmd.ErrOrStderr(), "Waiting up to %s for the container runtime and the kernel to change the class\n", changeTime)
	})
	defer notice.Stop()
	answer, err := client.UpdateContainerQOSResources(ctx, wanted.request(pod.GetUid()))
	if err != nil {
		return err
	}
	return o.print(cmd, answer, func() string {
		before := shell.Container(pod, answer.GetContainer().GetId())
		return shell.Change(pod, before, answer.GetContainer(), wanted.pairs)
	})
}

func (c change) request(podUID string) *qosv1alpha1.UpdateContainerQOSResourcesRequest {
	request := &qosv1alpha1.UpdateContainerQOSResourcesRequest{PodUid: podUID, Container: c.container}
	for _, pair := range c.pairs {
		request.QosResources = append(request.QosResources, &qosv1alpha1.ContainerQOSResource{Name: pair.Resource, Class: pair.Class})
	}
	return request
}
