// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

func newCheckCommand(c *cluster) *cobra.Command {
	var hostRoot string
	var dra bool
	cmd := &cobra.Command{
		Use:   "check FILE… | --dra",
		Short: "Check class files, or whether the cluster allows classes by DRA",
		Long: `check reads each class file or directory separately, and prints a line for every problem, like "qos-nri-plugin check
--offline". All *.yaml and *.yml files of a directory belong together, as for the plugin. In a directory, check skips
Kubernetes objects of other kinds. The plugin does not, so do not install such files among its class files. To check whether
a machine supports the classes, run "qos-nri-plugin check" on a node. No node or cluster is needed for class files.

With --dra, check prints a line for each reason why the cluster cannot offer classes by Dynamic Resource Allocation: feature gates, kubelets
and container runtimes. It needs the rights to list nodes and, for dry runs, to create DeviceClasses, ResourceSlices and ResourceClaims.

The exit code is 0 when there are no problems, 1 when there are, and 2 when the command line is wrong.`,
		Example: `  kubectl qos check classes.yaml
  kubectl qos check deploy/classes/
  kubectl qos check --dra`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case dra && len(args) > 0:
				return program.UsageError(cmd, errors.New("--dra checks the cluster, so it cannot be combined with FILE"))
			case !dra && len(args) == 0:
				return program.UsageError(cmd, errors.New("no FILE is named"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if dra {
				return c.checkDRA(cmd.Context())
			}
			kinds, err := kinds()
			if err != nil {
				return err
			}

			problems := 0
			for _, path := range args {
				source, skipped := config.ReadManifests(path, kinds, config.HostFiles(hostRoot))
				if len(skipped) > 0 {
					fmt.Fprintln(cmd.OutOrStdout(), "skipped files of other kinds:", program.Printable(strings.Join(skipped, ", ")))
				}
				problems += config.PrintProblems(cmd.OutOrStdout(), source.Err)
				if source.Err == nil {
					config.PrintSummary(cmd.OutOrStdout(), source, true)
				}
			}
			if problems > 0 {
				return config.Problems(problems)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&hostRoot, "host-root", "/", "Directory to which the paths in configFile fields are relative.")
	cmd.Flags().BoolVar(&dra, "dra", false, "Check whether the cluster allows classes by Dynamic Resource Allocation.")
	return cmd
}
