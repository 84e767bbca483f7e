#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-sidecars.sh DIR: builds the external-provisioner and the external-resizer into DIR, in the versions that
# sidecars/*/go.mod name. It also copies the RBAC manifests of both from their modules. The build needs network access
# to the Go module proxy.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-sidecars.sh DIR}")
export GOWORK=off CGO_ENABLED=0
rm -rf "$out.new"
mkdir -p "$out.new"
for name in provisioner resizer; do
  module=$(dirname "$0")/sidecars/$name
  nice go -C "$module" build -buildvcs=false -trimpath -ldflags '-s -w' -o "$out.new/" tool
  install -m 644 "$(go -C "$module" list -f '{{.Module.Dir}}' tool)/deploy/kubernetes/rbac.yaml" "$out.new/csi-$name.yaml"
done
mv -T "$out.new" "$out"
