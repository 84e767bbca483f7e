#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-crio.sh DIR: builds crio, pinns and copyimg (which imports images) as static programs into DIR, unless DIR/crio exists.
# The source is the tarball QOS_E2E_CRIO_SOURCE or, if this variable is not set, the Go module. If the Go module proxy does
# not have the module, the script prints a message and builds nothing. The build takes about 4 minutes on 2 cores, and needs
# network access to the proxy and Debian's archive.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-crio.sh DIR}")
. "$(cd "$(dirname "$0")" && pwd)/env.sh"
[ ! -x "$out/crio" ] || exit 0
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

ensure_packages gcc libc6-dev pkg-config xz-utils

mkdir "$work/cri-o"
cd "$work/cri-o"
if [ -n "${QOS_E2E_CRIO_SOURCE:-}" ]; then
  tar --strip-components=1 -xf "$QOS_E2E_CRIO_SOURCE"
elif module=$(cd "$work" && GOWORK=off go mod download -json "github.com/cri-o/cri-o@$CRIO_VERSION"); then
  cp -r "$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$module")/." .
  chmod -R u+w .
else
  echo "CRI-O $CRIO_VERSION is not at the Go module proxy, and QOS_E2E_CRIO_SOURCE names no tarball of its source: it is not built" >&2
  exit 0
fi

link_seccomp "$work/seccomp"
tags="netgo osusergo seccomp containers_image_openpgp containers_image_ostree_stub"
tags="$tags exclude_graphdriver_btrfs btrfs_noversion exclude_graphdriver_devicemapper"
# build NAME PACKAGE: builds one program.
build() {
  GOFLAGS="-buildvcs=false -mod=mod -trimpath" GOWORK=off CGO_ENABLED=1 \
    nice go build -tags "$tags" -ldflags "-s -w -extldflags -static" -o "$out/$1.new" "$2"
  mv "$out/$1.new" "$out/$1"
}

mkdir -p "$out"
nice gcc -std=c99 -O2 -static -s -o "$out/pinns" pinns/src/*.c
build copyimg ./test/copyimg
build crio ./cmd/crio # crio is built last: if it exists, all programs exist
