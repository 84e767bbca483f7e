// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package docs

// buildFlags makes programs build with the race detector, as these tests are, because Go's cache then has all packages already.
const buildFlags = "-race"
