// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"github.com/spf13/cobra"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

func newDeviceClassesCommand(c *cluster) *cobra.Command {
	var classFiles string
	cmd := &cobra.Command{
		Use:   "device-classes",
		Short: "Print the DeviceClasses for nodes that offer classes by Dynamic Resource Allocation",
		Long: `device-classes prints a DeviceClass for each class of the cluster, or of --class-files. With the DeviceClass, pods request the class in
their limits in the same way as on nodes with device plugins, and ResourceClaims can request it by the name of the DeviceClass.

Print and apply the DeviceClasses again after a class was added.`,
		Example: `  kubectl qos device-classes | kubectl apply -f -
  kubectl qos device-classes --class-files classes.yaml`,
		Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			known, err := c.known(cmd.Context(), classFiles, classFiles == "")
			if err != nil {
				return err
			}
			_, err = c.streams.Out.Write(convert.DeviceClasses(known))
			return err
		},
	}
	cmd.Flags().StringVar(&classFiles, "class-files", "", "Class file, or directory of class files, with the resources and classes that exist.")
	return cmd
}
