// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// These are the values of --dry-run, as in kubectl.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// dryRunSuffix returns the end of a line about a change that is made only in a dry run.
func dryRunSuffix(dryRun string) string {
	return map[string]string{dryRunClient: " (dry run)", dryRunServer: " (server dry run)"}[dryRun]
}

type setCommand struct {
	*cluster
	name, container string
	wholePod        bool
	dryRun          string
	wait            bool
	timeout         time.Duration
	change          change
}

func newSetCommand(c *cluster) *cobra.Command {
	o := &setCommand{cluster: c}
	cmd := &cobra.Command{
		Use:   "set POD (-c CONTAINER | --pod) RESOURCE=CLASS…",
		Short: "Change the classes of a running container",
		Long: `set requests other classes for a running container, with the annotation container.qos.noderesource.dev/CONTAINER of its
pod. With --pod it sets the annotation qos.noderesource.dev/pod, for all containers without a request of their own.
Requests for other resources stay. RESOURCE= requests the system default. RESOURCE- removes a request; the
container then has the class that the pod requests, or the default class.

set first checks that the node has the class, and that qos-kubelet-shim on the node runs with --follow-annotations. Otherwise
nothing is written. Then set waits until the shim has made the change. If the node refuses it, for example because the class is
full, or does not make it in time, set restores the annotation, and the exit code is 1.`,
		Example: `  kubectl qos set web -c main rdt=silver
  kubectl qos set web -c main rdt=silver,blockio=throttled --dry-run=server
  kubectl qos set web -c main rdt-`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return program.UsageError(cmd, errors.New("POD and at least one RESOURCE=CLASS or RESOURCE- are required"))
			}
			return nil
		},
		ValidArgsFunction: c.completePairs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(args); err != nil {
				return program.UsageError(cmd, err)
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.container, "container", "c", "", "Name of the container; optional for pods with one container.")
	flags.BoolVar(&o.wholePod, "pod", false, "Set the pod's request, which applies to the pod itself and to containers without their own request.")
	flags.StringVar(&o.dryRun, "dry-run", dryRunNone, "One of: none, client (check, and print the change) or server (the API server checks the change, too).")
	flags.Lookup("dry-run").NoOptDefVal = dryRunClient
	flags.BoolVar(&o.wait, "wait", true, "Wait until the change is made or refused.")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "How long to wait.")
	completeFlag(cmd, "container", c.completeContainer)
	completeFlag(cmd, "dry-run", cobra.FixedCompletions([]string{dryRunNone, dryRunClient, dryRunServer}, noFiles))
	return cmd
}

func (o *setCommand) read(args []string) (err error) {
	if o.name, err = podName(args[0]); err != nil {
		return err
	}

	switch {
	case o.wholePod && o.container != "":
		return errors.New("--pod and --container cannot be used together")
	case !slices.Contains([]string{dryRunNone, dryRunClient, dryRunServer}, o.dryRun):
		return fmt.Errorf("--dry-run %q is not one of none, client, server", o.dryRun)
	case o.timeout <= 0:
		return fmt.Errorf("--timeout %s must be positive; to return without waiting, use --wait=false", o.timeout)
	}
	o.change, err = parseChange(args[1:])
	return err
}

func (o *setCommand) run(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	var plan *settingPlan
	err = o.annotate(ctx, api, func(pod *corev1.Pod) (key, value string, err error) {
		if plan, err = o.plan(ctx, api, pod); err != nil {
			return "", "", err
		}
		return plan.key, plan.value, nil
	})
	if err != nil {
		return err
	}

	if o.dryRun == dryRunNone && o.wait {
		return o.await(ctx, api, plan)
	}
	o.print("%s %s%s\n", plan.subject(o.container), plan.annotation(), dryRunSuffix(o.dryRun))
	return nil
}

// plan returns the plan for the requested change of a pod, which it checks against the state of the pod's node.
func (o *setCommand) plan(ctx context.Context, api *clients, pod *corev1.Pod) (*settingPlan, error) {
	if err := o.choose(pod); err != nil {
		return nil, err
	}
	node, err := api.findNode(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	return newSettingPlan(pod, node, o.container, o.change, o.now())
}

// choose returns an error if the requested change of the pod or container is not possible. If the user names no
// container and the pod has only one, choose selects this container.
func (o *setCommand) choose(pod *corev1.Pod) error {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	names := askable(pod)
	switch {
	case mirror:
		return fmt.Errorf("pod %s is a static pod; change the requests in its manifest file on node %s", pod.Name, pod.Spec.NodeName)
	case podspec.Finished(pod) || pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s has ended or is being deleted; there is nothing to change", pod.Name)
	case pod.Spec.NodeName == "":
		return fmt.Errorf("pod %s is not scheduled to a node yet; change the requests in the object that creates the pod", pod.Name)
	case o.wholePod:
		return nil
	case isEphemeral(pod, o.container):
		return fmt.Errorf("container %s of pod %s is an ephemeral container, which cannot request classes; "+
			"choose an init or ordinary container%s", o.container, pod.Name, others(": ", names))
	case o.container == "" && len(names) == 1:
		o.container = names[0]
	case o.container == "":
		return fmt.Errorf("pod %s has several containers; name one with -c, or all with --pod%s", pod.Name, others(": ", names))
	case !slices.Contains(names, o.container):
		return fmt.Errorf("pod %s has no container %q%s", pod.Name, o.container, others("; its containers: ", names))
	}

	c, _ := containerNamed(pod, o.container)
	if alive, _ := (&podView{pod: pod}).alive(c); !alive {
		reason, _ := notCreated(c)
		return fmt.Errorf("container %s of pod %s does not run (%s); only classes of running containers can be changed", c.Container, pod.Name, reason)
	}
	return nil
}

// askable returns the names of the containers that can request classes.
func askable(pod *corev1.Pod) (names []string) {
	for _, c := range containersOf(pod) {
		if !isEphemeral(pod, c.Container) {
			names = append(names, c.Container)
		}
	}
	return names
}

func isEphemeral(pod *corev1.Pod, container string) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == container })
}

// annotate reads the pod, and writes the annotation that the function `decide` returns for it. If another client
// changes the pod at the same time, annotate reads the pod and calls `decide` again.
func (o *setCommand) annotate(ctx context.Context, api *clients, decide func(*corev1.Pod) (key, value string, err error)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod, err := api.getPod(ctx, o.name)
		if err != nil {
			return err
		}
		key, value, err := decide(pod)
		if err != nil || value == pod.Annotations[key] || o.dryRun == dryRunClient {
			return err
		}
		return o.patch(ctx, api, pod, key, value)
	})

	switch kubeapi.OutcomeOf(err) { //nolint:exhaustive // explain handles the other outcomes
	case kubeapi.Conflict:
		return fmt.Errorf("pod %s was changed by another client at every attempt; try again", o.name)
	case kubeapi.Failed:
		return err
	}
	return explain(err)
}

func (o *setCommand) patch(ctx context.Context, api *clients, pod *corev1.Pod, key, value string) error {
	annotations := map[string]any{key: value}
	if value == "" {
		annotations[key] = nil // removes the annotation
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return err
	}

	options := metav1.PatchOptions{FieldManager: fieldManager}
	if o.dryRun == dryRunServer {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = api.core.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, options)
	return err
}

func (p *settingPlan) subject(container string) string {
	if container == "" {
		return "pod/" + p.pod.Name + ":"
	}
	return "pod/" + p.pod.Name + " container " + container + ":"
}

func (p *settingPlan) annotation() string {
	if p.unchanged() {
		return fmt.Sprintf("annotation %s stays %q", p.key, p.had)
	}
	return fmt.Sprintf("annotation %s: %q -> %q", p.key, p.had, p.value)
}
