// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/tracing"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func newRunCommand() *cobra.Command {
	options := agent.DefaultOptions()
	options.Version = program.Version(version)
	var logging program.LogOptions
	var endpoint string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Register with the container runtime and serve until SIGTERM (the default)",
		Args:  program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logging.Logger(cmd.ErrOrStderr())
			if err != nil {
				return program.UsageError(cmd, err)
			}
			if !regexp.MustCompile(`^[0-9]{2}$`).MatchString(options.NRIIndex) {
				return program.UsageError(cmd, fmt.Errorf("--nri-index %q is not a number of two digits", options.NRIIndex))
			}
			if i := options.HeldInterval; i != 0 && (i < time.Second || i > 5*time.Minute) {
				return program.UsageError(cmd, fmt.Errorf("--held-interval %s is not between 1s and 5m, and not 0", i))
			}
			if i := options.HistoryInterval; i != 0 && (i < time.Second || i > time.Minute) {
				return program.UsageError(cmd, fmt.Errorf("--history-interval %s is not between 1s and 1m, and not 0", i))
			}

			if endpoint != "" {
				if options.Tracer, err = newTracer(endpoint, options.Version, log); err != nil {
					return program.UsageError(cmd, fmt.Errorf("--tracing-endpoint: %w", err))
				}
			}

			known, err := hostKinds(options.HostRoot, options.MountResctrl, log)
			if err != nil {
				return err
			}
			return agent.New(options, known, log).Run(cmd.Context())
		},
	}
	addRunFlags(cmd.Flags(), &options)
	cmd.Flags().StringVar(&endpoint, "tracing-endpoint", "",
		"URL of an OpenTelemetry collector that gets traces over HTTP, e.g. http://127.0.0.1:4318; empty for none")
	logging.AddFlags(cmd.Flags())
	return cmd
}

func addRunFlags(flags *pflag.FlagSet, o *agent.Options) {
	flags.StringVar(&o.Config, "config", o.Config, "class file, or directory of class files (*.yaml)")
	flags.StringVar(&o.NRISocket, "nri-socket", o.NRISocket, "NRI socket of the container runtime")
	flags.StringVar(&o.NRIIndex, "nri-index", o.NRIIndex, "two digits that set the order of this plugin among the NRI plugins of the node")
	flags.StringVar(&o.APISocket, "api-socket", o.APISocket, "unix socket to serve the node API on")
	flags.StringVar(&o.APISocketGroup, "api-socket-group", o.APISocketGroup, "name or number of a group whose members may use the node API, in addition to root")
	flags.StringVar(&o.APIReadSocket, "api-read-socket", o.APIReadSocket,
		"second, read-only unix socket of the node API; empty for none")
	flags.StringVar(&o.APIReadSocketGroup, "api-read-socket-group", o.APIReadSocketGroup,
		"name or number of a group whose members may use --api-read-socket, in addition to root")
	flags.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress,
		"address that serves /metrics, /healthz and /readyz; empty for none")
	flags.StringVar(&o.HostRoot, "host-root", o.HostRoot, "directory that contains the host's /sys, /dev and /proc")
	flags.StringVar(&o.StateDir, "state-dir", o.StateDir, "directory on a tmpfs for the lock and the checkpoint")
	flags.DurationVar(&o.HeldInterval, "held-interval", o.HeldInterval,
		"how often to compare what classes promise with what is measured, at most 5m, e.g. 15s; 0 for never")
	flags.DurationVar(&o.HistoryInterval, "history-interval", o.HistoryInterval,
		"how often to record what containers use and wait for, for \"kubectl qos blame\" and \"recommend\", at most 1m, e.g. 15s; 0 for never")
	flags.BoolVar(&o.MountResctrl, "mount-resctrl", o.MountResctrl, "mount resctrl when it is not mounted")
}

func newTracer(endpoint, version string, log *slog.Logger) (*tracing.Exporter, error) {
	resource := []tracing.Attribute{{Key: "service.name", Value: "qos-nri-plugin"}, {Key: "service.version", Value: version}}
	return tracing.New(endpoint, append(resource, tracing.ParseAttributes(os.Getenv("OTEL_RESOURCE_ATTRIBUTES"))...), log)
}

func hostKinds(hostRoot string, mountResctrl bool, log *slog.Logger) ([]classes.Kind, error) {
	host := hostfs.Root(hostRoot)
	tree, err := cgroup.Detect(host)
	if err != nil {
		return nil, fmt.Errorf("find cgroups below --host-root %s: %w", hostRoot, err)
	}
	return config.Kinds(config.Host{FS: host, Tree: tree, MountResctrl: mountResctrl, Log: log}), nil
}
