// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases (-X main.version=v0.1.0); else the Go toolchain knows.
var version string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Show the version of this program",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			_, err := fmt.Fprintln(cmd.OutOrStdout(), describeBuild(version, info))
			return err
		},
	}
}

// programVersion is the version alone, as the node API tells it.
func programVersion() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(version, info)
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
func describeBuild(linked string, info *debug.BuildInfo) string {
	parts := []string{}
	commit, modified := revision(info)
	if commit != "" {
		parts = append(parts, "commit "+commit)
	}
	if modified {
		parts = append(parts, "with changes")
	}
	parts = append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return fmt.Sprintf("qos-nri-plugin %s (%s)", versionOf(linked, info), strings.Join(parts, ", "))
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
