// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy tests what deploy/ installs without a cluster: it renders the manifests as kubectl does, and looks at what
// a user would notice. It is a module of its own because kustomize and the API's types are nothing that programs need.
package deploy
