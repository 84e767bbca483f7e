// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command qos-storage gives volumes the limits of the VolumeAttributesClasses of their claims.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/qos-nri/qos-nri-plugin/internal/claimdefaults"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/internal/statefulsets"
	"github.com/qos-nri/qos-nri-plugin/internal/storage"
)

// version is set by the linker for releases (-X main.version=v0.1.0).
var version string

func main() { os.Exit(program.Main(newRootCommand())) }

func newRootCommand() *cobra.Command {
	options := storage.Options{Options: replicated.Options{MetricsAddress: "127.0.0.1:9422", Version: program.Version(version)}}
	root := &cobra.Command{
		Use:   "qos-storage",
		Short: "Give volumes the limits of the VolumeAttributesClasses of their claims",
		Long: `qos-storage reads pods, claims, volumes and VolumeAttributesClasses. It writes the limits of the volumes of each node to the
NodeQOSResources object of the node. There, qos-kubelet-shim with --follow-claims and qos-nri-plugin enforce the limits, also on
running pods. Several replicas elect a leader.`,
	}
	runs(root, &options, func(ctx context.Context, log *slog.Logger) error { return storage.Run(ctx, options, log) })
	root.Flags().StringSliceVar(&options.Drivers, "drivers", options.Drivers,
		"comma-separated CSI drivers whose volumes get limits; for local volumes, use "+storage.LocalDriver)
	root.Flags().StringVar(&options.CSIDir, "csi-dir", options.CSIDir,
		"directory of the sockets for external-resizers, DRIVER.sock for each CSI driver in --drivers; empty for none")
	root.AddCommand(newResizeCommand(), newDefaultsCommand(), program.NewVersionCommand("qos-storage", version))
	return root
}

func newResizeCommand() *cobra.Command {
	options := replicated.Options{MetricsAddress: "127.0.0.1:9423", Version: program.Version(version)}
	cmd := &cobra.Command{
		Use:   "resize",
		Short: "Resize the volumes of StatefulSets",
		Long: `resize reads StatefulSetVolumes objects. It gives the claims of the pods of each StatefulSet the size and the
VolumeAttributesClass that the object with the name of the StatefulSet requests (KEP-0661). It runs in a process of its own, because it
needs other rights than the rest of qos-storage. Several replicas elect a leader.`,
	}
	runs(cmd, &options, func(ctx context.Context, log *slog.Logger) error { return statefulsets.Run(ctx, options, log) })
	return cmd
}

func newDefaultsCommand() *cobra.Command {
	options := claimdefaults.Options{Options: replicated.Options{MetricsAddress: "127.0.0.1:9424", Version: program.Version(version)}}
	cmd := &cobra.Command{
		Use:   "defaults",
		Short: "Write default VolumeAttributesClasses into claims",
		Long: `defaults gives bound claims that name no VolumeAttributesClass the default class of their StorageClass, even if the default is
set later. Quotas then count these claims. It runs in a process of its own, because it needs other rights than the rest of qos-storage.
Several replicas elect a leader.`,
	}
	runs(cmd, &options, func(ctx context.Context, log *slog.Logger) error { return claimdefaults.Run(ctx, options, log) })
	cmd.Flags().StringSliceVar(&options.Drivers, "drivers", options.Drivers,
		"comma-separated drivers whose claims get classes, as in the flag --drivers of qos-storage")
	return cmd
}

// options are the flags of a command.
type options interface {
	AddFlags(flags *pflag.FlagSet)
	Validate() error
}

// runs makes a command call `run` with a logger, and adds the flags of its options and of the logger.
func runs(cmd *cobra.Command, o options, run func(ctx context.Context, log *slog.Logger) error) {
	var logging program.LogOptions
	o.AddFlags(cmd.Flags())
	logging.AddFlags(cmd.Flags())
	cmd.Args = program.NoArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return logging.Run(cmd, o.Validate(), func(log *slog.Logger) error {
			klog.SetSlogLogger(log) // client-go logs with klog
			return run(cmd.Context(), log)
		})
	}
}
