#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-runtimes.sh DIR: builds static containerd, its shim, ctr and runc from their Go modules into DIR.
# About 5 minutes on 2 cores; does nothing for those that are there. Needs network, for the Go proxy and Debian's archive.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-runtimes.sh DIR}")
. "$(cd "$(dirname "$0")" && pwd)/env.sh"
export GOFLAGS="-buildvcs=false -mod=mod -trimpath" GOWORK=off
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# module NAME PACKAGE@VERSION…: an empty module that has the packages as tools, in the working directory.
module() {
  mkdir -p "$work/$1"
  cd "$work/$1"
  go mod init "example.com/$1" 2>/dev/null
  shift
  go get -tool "$@"
}

build_containerd() {
  local root=github.com/containerd/containerd/v2/cmd name
  [ -x "$out/containerd" ] && [ -x "$out/containerd-shim-runc-v2" ] && [ -x "$out/ctr" ] && return
  module containerd "$root"/{containerd,containerd-shim-runc-v2,ctr}"@$CONTAINERD_VERSION"
  for name in containerd containerd-shim-runc-v2 ctr; do
    CGO_ENABLED=0 nice go build -tags no_btrfs -ldflags "-s -w" -o "$out/$name.new" "$root/$name"
    mv "$out/$name.new" "$out/$name"
  done
}

# runc needs libseccomp for containerd's default profile.
build_runc() {
  [ -x "$out/runc" ] && return
  ensure_packages gcc pkg-config
  link_seccomp "$work/seccomp"
  module runc "github.com/opencontainers/runc@$RUNC_VERSION"
  CGO_ENABLED=1 nice go build -tags "seccomp netgo osusergo" -ldflags "-s -w -extldflags -static" -o "$out/runc.new" github.com/opencontainers/runc
  mv "$out/runc.new" "$out/runc"
}

build_containerd
build_runc
