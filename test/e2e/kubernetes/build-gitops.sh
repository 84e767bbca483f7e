#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-gitops.sh DIR: builds argocd and flux into DIR: the programs of gitops/, which run the code of Argo CD and Flux,
# of the versions that their go.mod names. The build needs network access to the Go module proxy.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-gitops.sh DIR}")
export GOWORK=off
rm -rf "$out.new"
mkdir -p "$out.new"
for name in flux argocd; do
  nice go -C "$(dirname "$0")/gitops/$name" build -buildvcs=false -trimpath -ldflags '-s -w' -o "$out.new/" .
done
mv -T "$out.new" "$out"
