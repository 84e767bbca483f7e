// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command qos-dra-driver publishes the QoS classes of this node as devices of Dynamic Resource Allocation (DRA).
package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/qos-nri/qos-nri-plugin/internal/dra"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// version is set by the linker for releases (-X main.version=v0.1.0).
var version string

func main() { os.Exit(program.Main(newRootCommand())) }

func newRootCommand() *cobra.Command {
	options := dra.DefaultOptions()
	options.Version = program.Version(version)
	var logging program.LogOptions
	root := &cobra.Command{
		Use:   "qos-dra-driver",
		Short: "Publish the QoS classes of this node by Dynamic Resource Allocation",
		Long: `qos-dra-driver reads the node API of qos-nri-plugin, and writes the ResourceSlices of the node: a device for each class. It prepares
ResourceClaims for the kubelet. It takes the place of "qos-kubelet-shim --publish=device-plugin" on the nodes that offer classes by Dynamic
Resource Allocation, because a node can offer a class in only one way.`,
		Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return logging.Run(cmd, options.Validate(), func(log *slog.Logger) error {
				program.Protect(log)
				klog.SetSlogLogger(log) // the libraries of Kubernetes log with klog
				return dra.Run(cmd.Context(), options, log)
			})
		},
	}
	addFlags(root.Flags(), &options)
	logging.AddFlags(root.Flags())
	root.AddCommand(program.NewVersionCommand("qos-dra-driver", version))
	return root
}

func addFlags(flags *pflag.FlagSet, o *dra.Options) {
	flags.StringVar(&o.APISocket, "api-socket", o.APISocket, "unix socket of qos-nri-plugin's node API")
	flags.StringVar(&o.KubeletDir, "kubelet-dir", o.KubeletDir, "the kubelet's root directory, with plugins and plugins_registry in it")
	flags.StringVar(&o.CDIDir, "cdi-dir", o.CDIDir, "the directory in which the container runtime finds CDI devices")
	flags.StringVar(&o.NodeName, "node-name", hostname(), "name of this Node in Kubernetes")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file for the Kubernetes API; empty for the pod's service account")
	flags.DurationVar(&o.Grace, "grace", o.Grace, "how long classes can be allocated while qos-nri-plugin is not ready")
	flags.BoolVar(&o.Retire, "retire", o.Retire, "offer no classes, and serve only the claims that have been prepared; the node's device plugins take over")
	flags.BoolVar(&o.NoExecute, "no-execute", o.NoExecute,
		"give removed classes with \"onClassRemoved: evict\" the taint NoExecute, so that Kubernetes deletes the pods with claims for them")
	flags.StringSliceVar(&o.PerDomain, "per-domain", o.PerDomain,
		"names of resources whose classes have a device for each L3 cache and NUMA node; a class whose values differ between L3 caches always has them")
	flags.StringVar(&o.SysDir, "sys-dir", o.SysDir, "the mount point of sysfs, where the driver finds the L3 caches and NUMA nodes")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "address that serves /metrics, /healthz and /readyz; empty for none")
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}
