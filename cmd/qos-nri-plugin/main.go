// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command qos-nri-plugin gives containers of this node the QoS classes that they ask for.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitProblems = 1 // what was asked could not be done, or check found problems
	exitUsage    = 2 // the command line is wrong
)

// errUsage is in the chain of errors about the command line.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(execute(ctx, newRootCommand(), os.Args[1:]))
}

// execute runs a command and returns the exit code.
func execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(root.ErrOrStderr(), "Error:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitProblems
}

func newRootCommand() *cobra.Command {
	run := newRunCommand()
	root := &cobra.Command{
		Use:   "qos-nri-plugin",
		Short: "QoS-class resources (KEP-3008) for the containers of this node",
		Long: `qos-nri-plugin registers with containerd or CRI-O over NRI, and gives containers the RDT and block I/O classes
that they ask for. Without a command it does what "run" does.`,
		Args:          noArguments,
		RunE:          run.RunE,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().AddFlagSet(run.Flags())
	root.SetFlagErrorFunc(usageError)
	root.AddCommand(run, newCheckCommand(), newStatusCommand(), newAssignmentsCommand(), newUpdateCommand(), newVersionCommand())
	return root
}

// noArguments refuses arguments, as a usage error.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError(cmd, fmt.Errorf("unknown command %q", args[0]))
	}
	return nil
}

func usageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: %w; see %q", errUsage, err, cmd.CommandPath()+" --help")
}
