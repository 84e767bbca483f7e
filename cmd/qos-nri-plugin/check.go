// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/runtimesetup"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type checkOptions struct {
	path, hostRoot, runtimeEndpoint, nriSocket string

	offline, mountResctrl bool
	kinds                 func(o *checkOptions) ([]classes.Kind, error)
}

func newCheckCommand() *cobra.Command { return newCheckCommandFor(kindsToCheck) }

func newCheckCommandFor(known func(o *checkOptions) ([]classes.Kind, error)) *cobra.Command {
	defaults := agent.DefaultOptions()
	o := checkOptions{kinds: known}
	cmd := &cobra.Command{
		Use:   "check [PATH]",
		Short: "Check class files, and whether this machine and its container runtime support them",
		Long: `check reads the class files of PATH, a file or a directory, or those of --config. It prints a line for every problem of
the files and, without --offline, for every problem with applying them on this machine. If there are none, it prints a table of the
features that the machine has. It changes nothing.
Lines that begin with "warning" report classes that are enforced only in part, and resources that are unavailable on this machine.
With --runtime-endpoint it also checks over CRI whether the container runtime is set up for QoS classes; settings that the runtime
does not report are "unknown".

The exit code is 0 when there are no problems, 1 when there are, and 2 when the command line is wrong.`,
		Example: `  qos-nri-plugin check
  qos-nri-plugin check --offline ./classes.yaml
  qos-nri-plugin check --runtime-endpoint unix:///run/containerd/containerd.sock`,
		Args: atMostOne("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.path = args[0]
			}
			return o.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.path, "config", defaults.Config, "class file, or directory of class files (*.yaml), if PATH is not given")
	flags.StringVar(&o.hostRoot, "host-root", defaults.HostRoot, "directory that contains the host's /sys, /dev, /proc and /etc; not used for sockets")
	flags.BoolVar(&o.mountResctrl, "mount-resctrl", defaults.MountResctrl, "assume that qos-nri-plugin runs with --mount-resctrl")
	flags.BoolVar(&o.offline, "offline", false, "check only the files, not this machine")
	flags.StringVar(&o.runtimeEndpoint, "runtime-endpoint", "", "CRI socket of the container runtime to check, as unix:///path")
	flags.StringVar(&o.nriSocket, "nri-socket", defaults.NRISocket, "NRI socket of the container runtime")
	return cmd
}

// kindsToCheck returns all kinds of resources that class files can configure. A check of class files with these kinds
// writes nothing and mounts nothing.
func kindsToCheck(o *checkOptions) ([]classes.Kind, error) {
	if o.offline {
		return config.OfflineKinds(), nil
	}
	return hostKinds(o.hostRoot, o.mountResctrl, slog.New(slog.DiscardHandler))
}

func (o *checkOptions) run(cmd *cobra.Command) error {
	known, err := o.kinds(o)
	if err != nil {
		return err
	}

	out := cmd.OutOrStdout()
	source := config.Read(o.path, known, config.HostFiles(o.hostRoot))
	problems := checkFiles(cmd.Context(), out, source, known, o.offline)
	if o.runtimeEndpoint != "" {
		more, err := o.checkRuntime(cmd.Context(), out, source.Config)
		if errors.Is(err, runtimesetup.ErrEndpoint) {
			return program.UsageError(cmd, err)
		}
		problems += more
	}

	if problems > 0 {
		return config.Problems(problems)
	}
	return nil
}

// checkFiles checks class files and returns the number of problems. It prints the problems or, if there are none, a summary.
func checkFiles(ctx context.Context, out io.Writer, source classes.FileSet, known []classes.Kind, offline bool) int {
	var resources []state.ResourceStatus
	err := source.Err
	if err == nil && !offline {
		n := node.New(node.Options{Kinds: known, Log: slog.New(slog.DiscardHandler)})
		resources, err = n.Check(ctx, source)
	}
	if err != nil {
		return config.PrintProblems(out, err)
	}

	printFeatures(out, resources)
	for _, warning := range warningsOf(resources) {
		fmt.Fprintln(out, "warning: "+program.OneLine(warning))
	}
	config.PrintSummary(out, source, offline)
	return 0
}

// printFeatures prints what this machine can do for each resource.
func printFeatures(out io.Writer, resources []state.ResourceStatus) {
	for _, r := range resources {
		if len(r.Features) == 0 {
			continue
		}
		rows := [][]string{{"FEATURE OF " + r.Name, "HERE", "REASON"}}
		for _, f := range r.Features {
			rows = append(rows, []string{f.Name, map[bool]string{true: "yes", false: "no"}[f.Available], f.Reason})
		}
		fmt.Fprint(out, tables.Align(rows, "", 0, 3))
	}
}

func (o *checkOptions) checkRuntime(ctx context.Context, out io.Writer, files *classes.Config) (problems int, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()

	options := runtimesetup.Options{Endpoint: o.runtimeEndpoint, NRISocket: o.nriSocket, Files: hostfs.Root(o.hostRoot), Properties: propertiesOf(files)}
	if filepath.Clean(o.hostRoot) == "/" {
		options.Features = runtimesetup.Features
	}

	findings, err := runtimesetup.Inspect(ctx, options)
	for _, finding := range findings {
		fmt.Fprintln(out, "runtime: "+program.OneLine(finding.String()))
		if finding.Level == runtimesetup.Problem {
			problems++
		}
	}
	return problems, err
}

// propertiesOf returns the properties of the classes that some versions of NRI cannot set.
func propertiesOf(files *classes.Config) (all []runtimesetup.Property) {
	if files == nil {
		return nil
	}
	for _, resource := range files.Resources {
		sets, is := resource.Backend.(classes.Setter)
		if !is {
			continue
		}
		for _, setting := range sets.Sets() {
			if since := nriplugin.Since(setting); since != "" {
				all = append(all, runtimesetup.Property{Name: setting.String() + " of " + resource.Name, NRI: since})
			}
		}
	}
	return all
}

// warningsOf returns warnings about resources that this machine does not have or supports only in part.
func warningsOf(resources []state.ResourceStatus) []string {
	var warnings []string
	for _, r := range resources {
		if r.Unavailable != nil {
			warnings = append(warnings, fmt.Sprintf("%s: unavailable on this machine (%s): %s", r.Name, r.Unavailable.Reason, r.Unavailable.Message))
		}
		for _, class := range slices.Sorted(maps.Keys(r.Degraded)) {
			warnings = append(warnings, fmt.Sprintf("%s: class %s is enforced only in part: %s", r.Name, class, r.Degraded[class]))
		}
		for _, c := range r.Conditions {
			if !c.Healthy || c.Limited {
				warnings = append(warnings, fmt.Sprintf("%s: %s: %s: %s", r.Name, c.Type, c.Reason, c.Message))
			}
		}
	}
	return warnings
}
