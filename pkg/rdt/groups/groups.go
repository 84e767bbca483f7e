// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package groups names the resctrl groups of RDT classes.
package groups

import (
	"strings"

	goresctrl "github.com/intel/goresctrl/pkg/rdt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

const (
	// Prefix is the prefix of the resctrl groups that this program manages. The program never changes groups without this
	// prefix, except the root group.
	Prefix = "qos-"
	// RootClass is the name that configurations use for the class of the root group.
	RootClass = goresctrl.RootClassName
	// MaxName is the maximum length of the name of a group, which is the name of a directory.
	MaxName = 255
)

// Of returns the resctrl group of a class. The system default is the root group, whose name is empty.
func Of(class string) string {
	if class == classes.SystemDefault {
		return resctrl.Root
	}
	return Prefix + class
}

// ClassOf returns the class of a managed group, and the system default for the root group.
func ClassOf(group string) string { return strings.TrimPrefix(group, Prefix) }

// IsManaged reports whether this program manages the control group. The root group is not managed.
func IsManaged(group string) bool { return strings.HasPrefix(group, Prefix) && group != Prefix }
