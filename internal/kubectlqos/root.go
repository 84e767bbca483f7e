// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubectlqos is "kubectl qos": it shows and changes QoS-class resources in a cluster.
package kubectlqos

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// NewRootCommand makes the root command, which has kubectl's flags for connections. `version` is the version that the
// linker sets, and may be empty. NewRootCommand does no I/O.
func NewRootCommand(version string, streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	agent := "kubectl-qos/" + program.Version(version)
	c := &cluster{
		streams: streams,
		now:     time.Now,
		pause:   pause.For,
		connect: func() (*clients, error) { return connect(flags, agent, streams.ErrOut) },
	}
	root := newRootCommand(c, version)
	flags.AddFlags(root.PersistentFlags())
	completeConnection(root, flags)
	completeFlag(root, "namespace", c.completeNamespace)
	return root
}

func newRootCommand(c *cluster, version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-qos",
		Short: "QoS-class resources (KEP-3008) of nodes and pods",
		Long: `kubectl qos shows which QoS-class resources the nodes of a cluster have, and which classes pods request and have. It
changes classes of running containers, and converts manifests with KEP-3008 fields to manifests for stock Kubernetes.`,
		Example: `  kubectl qos nodes
  kubectl qos pods -n shop
  kubectl qos set web -c main rdt=silver`,
		// Help and errors show this name in place of the file's name, kubectl-qos.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl qos"},
		Args:        program.NoArguments,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	root.SetIn(c.streams.In)
	root.SetOut(c.streams.Out)
	root.SetErr(c.streams.ErrOut)
	root.CompletionOptions.DisableDefaultCmd = true // newCompletionCommand replaces the default command, and also supports kubectl
	root.AddCommand(
		newNodesCommand(c), newPodsCommand(c), newVolumesCommand(c), newTopCommand(c), newBlameCommand(c), newRecommendCommand(c),
		newSetCommand(c), newResizeCommand(c), newConvertCommand(c), newQuotaCommand(c), newDeviceClassesCommand(c), newCheckCommand(c), newCompletionCommand(),
		program.NewVersionCommand("kubectl-qos", version),
	)
	return root
}

// cluster connects commands to Kubernetes and to the terminal. A command connects when it runs, because the commands
// are made before the flags are read.
type cluster struct {
	streams genericiooptions.IOStreams
	connect func() (*clients, error)
	now     func() time.Time
	// pause waits for a time, or until the context ends.
	pause func(context.Context, time.Duration)
}

func (c *cluster) print(format string, args ...any) { fmt.Fprintf(c.streams.Out, format, args...) }
