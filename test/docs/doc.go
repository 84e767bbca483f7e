// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs compares the README and the pages below docs with the code, the manifests and the tests.
package docs
