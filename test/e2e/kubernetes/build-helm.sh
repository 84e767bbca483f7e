#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-helm.sh DIR: builds helm, of the version that test/chart/go.mod names, into DIR. The build needs network access
# to the Go module proxy.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-helm.sh DIR}")
mkdir -p "$out"
GOWORK=off nice go -C "$(dirname "$0")/../../chart" build -buildvcs=false -ldflags '-s -w' -o "$out/helm.new" helm.sh/helm/v4/cmd/helm
mv "$out/helm.new" "$out/helm"
