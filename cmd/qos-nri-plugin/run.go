// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/qos-nri/qos-nri-plugin/internal/agent"
)

func newRunCommand() *cobra.Command {
	options := agent.DefaultOptions()
	options.Version = programVersion()
	logging := logOptions{level: "info", format: "text"}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Register with the container runtime and serve until SIGTERM (the default)",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logging.logger(cmd.ErrOrStderr())
			if err != nil {
				return usageError(cmd, err)
			}
			if !regexp.MustCompile(`^[0-9]{2}$`).MatchString(options.NRIIndex) {
				return usageError(cmd, fmt.Errorf("--nri-index %q is not a number of two digits", options.NRIIndex))
			}
			known, err := kinds(options.HostRoot, options.MountResctrl, log)
			if err != nil {
				return err
			}
			return agent.New(options, known, log).Run(cmd.Context())
		},
	}
	addRunFlags(cmd.Flags(), &options)
	logging.addFlags(cmd.Flags())
	return cmd
}

func addRunFlags(flags *pflag.FlagSet, o *agent.Options) {
	flags.StringVar(&o.Config, "config", o.Config, "class file, or directory of class files (*.yaml)")
	flags.StringVar(&o.NRISocket, "nri-socket", o.NRISocket, "NRI socket of the container runtime")
	flags.StringVar(&o.NRIIndex, "nri-index", o.NRIIndex, "place among the NRI plugins of the node, two digits")
	flags.StringVar(&o.APISocket, "api-socket", o.APISocket, "unix socket to serve the node API on")
	flags.StringVar(&o.APISocketGroup, "api-socket-group", o.APISocketGroup, "name or number of a group that may use the node API too")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "address of /metrics, /healthz and /readyz; empty is off")
	flags.StringVar(&o.HostRoot, "host-root", o.HostRoot, "where the host's /sys, /dev and /proc are")
	flags.StringVar(&o.StateDir, "state-dir", o.StateDir, "directory on a tmpfs for the lock and the checkpoint")
	flags.BoolVar(&o.MountResctrl, "mount-resctrl", o.MountResctrl, "mount resctrl when it is not mounted")
}

type logOptions struct{ level, format string }

func (o *logOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.level, "log-level", o.level, "debug, info, warn or error")
	flags.StringVar(&o.format, "log-format", o.format, "text or json")
}

func (o *logOptions) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", o.level)
	}
	switch o.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", o.format)
}
