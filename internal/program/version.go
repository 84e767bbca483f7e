// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// NewVersionCommand returns the command "version" of a program. `linked` is the version that the linker sets for
// releases. If `linked` is empty, the command prints the version from the build information of the Go toolchain.
func NewVersionCommand(name, linked string) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Show the version of this program",
		Args:              NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			_, err := fmt.Fprintln(cmd.OutOrStdout(), describeBuild(name, linked, info))
			return err
		},
	}
}

// Version returns its argument, or the version in the build information of the Go toolchain if the argument is empty.
func Version(linked string) string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(linked, info)
}

func versionOf(linked string, info *debug.BuildInfo) string {
	switch {
	case linked != "":
		return linked
	case info != nil && info.Main.Version != "":
		return info.Main.Version
	}
	return "(devel)"
}

func describeBuild(name, linked string, info *debug.BuildInfo) string {
	var parts []string
	if info != nil {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				parts = append(parts, "commit "+setting.Value[:min(12, len(setting.Value))])
			case setting.Key == "vcs.modified" && setting.Value == "true":
				parts = append(parts, "with changes")
			}
		}
	}

	parts = append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return fmt.Sprintf("%s %s (%s)", name, versionOf(linked, info), strings.Join(parts, ", "))
}
