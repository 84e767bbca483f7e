// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package program has the parts that all commands share: exit codes, usage errors, log flags and the version.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// These are the exit codes of all commands.
const (
	ExitProblems = 1 // the command failed or found problems
	ExitUsage    = 2 // the command line is wrong
)

// errUsage is wrapped by every error about the command line.
var errUsage = errors.New("usage")

// Main runs a program until it ends, or until SIGTERM or SIGINT, and returns the exit code.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return Execute(ctx, root, os.Args[1:])
}

// Execute runs a command and returns the exit code. It prints an error as one line.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(append([]string{}, args...)) // with nil, cobra takes those of the process
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(UsageError)

	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(root.ErrOrStderr(), "Error:", OneLine(err.Error()))
	if errors.Is(err, errUsage) {
		return ExitUsage
	}
	return ExitProblems
}

// NoArguments returns a usage error if the command has any argument.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UsageError(cmd, fmt.Errorf("unknown command %q", args[0]))
	}
	return nil
}

// UsageError wraps an error about the command line, and adds a reference to the command's help.
func UsageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: %w; see %q", errUsage, err, cmd.CommandPath()+" --help")
}

// LogOptions are the flags of a program's logger.
type LogOptions struct{ Level, Format string }

// AddFlags adds the log flags with their default values.
func (o *LogOptions) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.Format, "log-format", "text", "text or json")
}

// Logger returns a logger with these options. If an option is invalid, the error names the flag.
func (o *LogOptions) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", o.Level)
	}

	options := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", o.Format)
}

// Run calls a function with a logger that has these options. If one of them is invalid, it returns a usage error
// instead. The caller passes the error of the command's other options as `invalid`.
func (o *LogOptions) Run(cmd *cobra.Command, invalid error, call func(log *slog.Logger) error) error {
	log, err := o.Logger(cmd.ErrOrStderr())
	if err == nil {
		err = invalid
	}
	if err != nil {
		return UsageError(cmd, err)
	}
	return call(log)
}
