#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-sidecars.sh DIR: builds the external-resizer, of the version that sidecars/go.mod names, into DIR. Needs network for the Go proxy.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-sidecars.sh DIR}")
mkdir -p "$out"
GOWORK=off CGO_ENABLED=0 nice go -C "$(dirname "$0")/sidecars" build -buildvcs=false -trimpath -ldflags '-s -w' -o "$out/csi-resizer.new" \
  github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer
mv "$out/csi-resizer.new" "$out/csi-resizer"
