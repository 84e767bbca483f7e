// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy tests the manifests of deploy/ without a cluster: it renders them as kubectl does. It is a module of its own
// because the programs need neither kustomize nor the API's types.
package deploy
