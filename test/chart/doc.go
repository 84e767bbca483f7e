// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart in deploy/chart without a cluster: it renders the chart as helm does, and compares the result with
// that of kustomize. It is a module of its own because only these tests need Helm.
package chart
