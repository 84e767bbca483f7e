#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build.sh DIR MODULE: builds etcd and the programs of Kubernetes as static programs into DIR, from the modules that
# MODULE/go.mod names. MODULE is a directory here: programs or programs-1.37. The build takes about 12 minutes on 2 cores, and needs
# network access to the Go module proxy. Programs that exist are skipped.
set -euo pipefail
usage="usage: build.sh DIR MODULE"
out=$(realpath -m "${1:?$usage}")
cd "$(dirname "$0")/${2:?$usage}"
export GOFLAGS="-buildvcs=false -trimpath" GOWORK=off CGO_ENABLED=0
mkdir -p "$out"

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
# These are the variables that a release build sets. Without a version, the kubelet refuses to register.
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  for setting in "gitVersion=$version" gitMajor=1 "gitMinor=${minor%%.*}" gitTreeState=clean; do
    flags+=" -X $package.$setting"
  done
done

# build NAME PACKAGE: builds a program, unless it exists.
build() {
  [ ! -x "$out/$1" ] || return 0
  echo "building $1"
  nice go build -ldflags "$flags" -o "$out/$1.new" "$2"
  mv "$out/$1.new" "$out/$1"
}

build etcd go.etcd.io/etcd/server/v3
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet; do
  build "$name" "k8s.io/kubernetes/cmd/$name"
done
