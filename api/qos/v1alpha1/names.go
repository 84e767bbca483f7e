// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package qosv1alpha1

import "strings"

// Name returns the lower-case name of a source, e.g. "allocated". It returns "" if nothing was requested.
func (x Source) Name() string {
	if x == Source_SOURCE_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(x.String(), "SOURCE_"), "_", "-"))
}

// Name returns the lower-case name of a scope, e.g. "pod".
func (x Scope) Name() string { return strings.ToLower(strings.TrimPrefix(x.String(), "SCOPE_")) }
