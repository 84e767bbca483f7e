// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command qos-kubelet-shim publishes to Kubernetes which QoS classes this node has, and which pods and containers have
// them.
package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeletshim"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// version is set by the linker for releases (-X main.version=v0.1.0).
var version string

func main() { os.Exit(program.Main(newRootCommand())) }

func newRootCommand() *cobra.Command {
	options := kubeletshim.DefaultOptions()
	options.Version = program.Version(version)
	var logging program.LogOptions
	root := &cobra.Command{
		Use:   "qos-kubelet-shim",
		Short: "Publish the QoS classes of this node and their holders to Kubernetes",
		Long: `qos-kubelet-shim reads the node API of qos-nri-plugin. To the kubelet it is a device plugin for each class: NodeStatus has the
capacities of the classes, and pods request classes as extended resources. In the Kubernetes API it writes the node's
NodeQOSResources object, a condition on each pod that has classes, and events. If it has the permission to evict pods, it
evicts pods whose class was removed from class files that have onClassRemoved: evict.

Device plugins need only the kubelet, and everything else needs only the Kubernetes API. With --publish, two processes can
share this work.`,
		Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return logging.Run(cmd, options.Validate(), func(log *slog.Logger) error {
				program.Protect(log)
				klog.SetSlogLogger(log) // client-go logs with klog
				return kubeletshim.New(options, log).Run(cmd.Context())
			})
		},
	}
	addFlags(root.Flags(), &options)
	logging.AddFlags(root.Flags())
	root.AddCommand(newAwaitResetCommand(), program.NewVersionCommand("qos-kubelet-shim", version))
	return root
}

func newAwaitResetCommand() *cobra.Command {
	var logging program.LogOptions
	var kubeconfig string
	timeout := kubeletshim.ResetTimeout
	command := &cobra.Command{
		Use:   "await-reset",
		Short: "Wait until no node offers a class",
		Long: `await-reset waits until no node offers a class of containers or pods. It does not wait for classes that were removed from the class
files and that containers still have, nor for nodes that have not reported for ten minutes. After the timeout, it names the nodes that
still offer classes, with the reasons, and exits with code 1. The Helm chart runs it before an uninstall, after it has removed the
classes from all class files.`,
		Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return logging.Run(cmd, nil, func(log *slog.Logger) error {
				return kubeletshim.AwaitReset(cmd.Context(), kubeconfig, program.Version(version), timeout, log)
			})
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", timeout, "the longest time to wait")
	addKubeconfig(command.Flags(), &kubeconfig)
	logging.AddFlags(command.Flags())
	return command
}

func addKubeconfig(flags *pflag.FlagSet, kubeconfig *string) {
	flags.StringVar(kubeconfig, "kubeconfig", *kubeconfig, "kubeconfig file for the Kubernetes API; empty for the pod's service account")
}

func addFlags(flags *pflag.FlagSet, o *kubeletshim.Options) {
	flags.StringVar(&o.APISocket, "api-socket", o.APISocket, "unix socket of qos-nri-plugin's node API")
	flags.StringVar(&o.KubeletDir, "kubelet-dir", o.KubeletDir, "the kubelet's root directory, with device-plugins and pod-resources in it")
	flags.StringVar(&o.NodeName, "node-name", hostname(), "name of this Node in Kubernetes")
	addKubeconfig(flags, &o.Kubeconfig)
	flags.StringSliceVar(&o.Publish, "publish", o.Publish,
		"what to publish: "+strings.Join(kubeletshim.Publications(), ","))
	flags.BoolVar(&o.FollowAnnotations, "follow-annotations", o.FollowAnnotations,
		"change classes of running containers when the annotations of their pods change")
	flags.BoolVar(&o.FollowClaims, "follow-claims", o.FollowClaims,
		"limit volumes by the VolumeAttributesClasses of their claims; qos-storage writes these classes to the NodeQOSResources object")
	flags.DurationVar(&o.Grace, "grace", o.Grace, "how long capacity is kept while qos-nri-plugin is not ready; after that, new pods get no classes")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress,
		"address that serves /metrics, /healthz and /readyz; empty for none")
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}
