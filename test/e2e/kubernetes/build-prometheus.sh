#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-prometheus.sh DIR: builds Prometheus, of the version that tools/prometheus/go.mod names, into DIR. Of the
# service discoveries, the build contains only that of Kubernetes. The build tags are those of promtool in the Makefile,
# so that Go compiles the common packages only once. The build needs network access to the Go module proxy.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-prometheus.sh DIR}")
mkdir -p "$out"
GOWORK=off nice go -C "$(dirname "$0")/../../../tools/prometheus" build -buildvcs=false -tags remove_all_sd,enable_kubernetes_sd \
  -ldflags '-s -w' -o "$out/prometheus.new" github.com/prometheus/prometheus/cmd/prometheus
mv "$out/prometheus.new" "$out/prometheus"
