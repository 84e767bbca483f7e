// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command qos-nri-plugin assigns QoS classes to the containers and pods of this node that request them.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// version is set by the linker for releases (-X main.version=v0.1.0).
var version string

func main() { os.Exit(program.Main(newRootCommand())) }

func newRootCommand() *cobra.Command {
	run := newRunCommand()
	root := &cobra.Command{
		Use:   "qos-nri-plugin",
		Short: "QoS-class resources (KEP-3008) for the containers of this node",
		Long: `qos-nri-plugin registers with containerd or CRI-O over NRI, and gives containers the RDT and block I/O classes
that they request. Without a command it runs "run".`,
		Args: program.NoArguments,
		RunE: run.RunE,
	}
	root.Flags().AddFlagSet(run.Flags())
	root.AddCommand(run, newCheckCommand(), newStatusCommand(), newAssignmentsCommand(), newTopCommand(), newUpdateCommand(), newCalibrateCommand(),
		program.NewVersionCommand("qos-nri-plugin", version))
	return root
}
