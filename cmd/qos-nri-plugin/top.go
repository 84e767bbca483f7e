// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
)

type topOptions struct {
	*apiOptions
	view     shell.UsageView
	interval time.Duration
	once     bool
}

func newTopCommand() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what classes and containers of this node use: cache, memory bandwidth, block I/O",
		Long: `top measures what each class uses, and shows it again at each interval until interrupted. With --containers it also shows each
container. Values per second are averages over the interval. WAITING and STALLED are the shares of the time in which some or all
tasks of a container waited for I/O, added up over the containers of a class. PART is the cache or the disk that has the values.

Documents (-o json, -o yaml) are messages of the node API: qos.v1alpha1.WatchUsageResponse. Their values whose name ends in
"_total" are cumulative.`,
		Example: `  qos-nri-plugin top
  qos-nri-plugin top --once --containers --sort-by read`,
		Args:              program.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.view.SortBy != "" && !slices.Contains(tables.Orders(), o.view.SortBy):
				return program.UsageError(cmd, fmt.Errorf("--sort-by %q is not one of %s", o.view.SortBy, strings.Join(tables.Orders(), ", ")))
			case o.interval < time.Second:
				return program.UsageError(cmd, fmt.Errorf("--interval %s is shorter than 1s", o.interval))
			}
			return o.call(cmd, 0, func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error {
				err := o.run(ctx, cmd, client)
				if ctx.Err() != nil {
					return nil // interrupted
				}
				return err
			})
		},
	}
	o.apiOptions = newAPIOptions(cmd)
	cmd.Flags().BoolVar(&o.view.Containers, "containers", false, "also show containers and pods")
	cmd.Flags().StringVar(&o.view.SortBy, "sort-by", "", "order by a column, largest first: one of "+strings.Join(tables.Orders(), ", "))
	cmd.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "time between two measurements, at least 1s")
	cmd.Flags().BoolVar(&o.once, "once", false, "show the usage of one interval, then end; with -o json or yaml, show one measurement")
	// The call returns an error only if the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(tables.Orders(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// run prints a table for each interval. For the formats json and yaml, it prints each message as a document.
func (o *topOptions) run(ctx context.Context, cmd *cobra.Command, client qosv1alpha1.NodeQOSClient) error {
	stream, err := client.WatchUsage(ctx, &qosv1alpha1.WatchUsageRequest{Interval: durationpb.New(o.interval)})
	if err != nil {
		return err
	}

	separator := ""
	for before := (*qosv1alpha1.WatchUsageResponse)(nil); ; {
		now, err := stream.Recv()
		if err != nil {
			return err
		}
		if isTable := o.format == shell.Table; !isTable || before != nil {
			if isTable {
				fmt.Fprint(cmd.OutOrStdout(), separator)
				separator = program.Separator(cmd.OutOrStdout())
			}
			if err := o.print(cmd, now, func() string { return shell.Usage(before, now, o.view) }); err != nil || o.once {
				return err
			}
		}
		before = now
	}
}
