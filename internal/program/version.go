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

// NewVersionCommand makes the command "version" of a program. linked is what the linker set for releases, else empty: then
// the Go toolchain knows.
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

// Version is the version alone.
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

// describeBuild names version, commit, toolchain and platform in one line; info may be nil.
func describeBuild(name, linked string, info *debug.BuildInfo) string {
	parts := []string{}
	commit, modified := revision(info)
	if commit != "" {
		parts = append(parts, "commit "+commit)
	}
	if modified {
		parts = append(parts, "with changes")
	}
	parts = append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return fmt.Sprintf("%s %s (%s)", name, versionOf(linked, info), strings.Join(parts, ", "))
}

func revision(info *debug.BuildInfo) (commit string, modified bool) {
	if info == nil {
		return "", false
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			commit = setting.Value[:min(12, len(setting.Value))]
		case "vcs.modified":
			modified = setting.Value == "true"
		}
	}
	return commit, modified
}
