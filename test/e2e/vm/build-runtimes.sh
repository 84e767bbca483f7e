#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-runtimes.sh DIR NAME@VERSION…: puts runtimes into DIR. It builds containerd (with its shim and ctr) and runc as static
# programs from their Go modules. It unpacks crun and its libraries from Debian 13, with the paths that they have below /. A
# build takes about 4 minutes on 2 cores; programs that exist are skipped. The script needs network access to the Go module
# proxy and Debian's archive.
set -euo pipefail
usage='usage: build-runtimes.sh DIR containerd|runc|crun@VERSION…'
out=$(realpath -m "${1:?$usage}")
shift
. "$(cd "$(dirname "$0")" && pwd)/env.sh"
export GOFLAGS="-buildvcs=false -mod=mod -trimpath" GOWORK=off
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# module NAME PACKAGE@VERSION…: creates a module with the packages as tools, and changes to its directory.
module() {
  mkdir -p "$work/$1"
  cd "$work/$1"
  go mod init "example.com/$1" 2>/dev/null
  shift
  go get -tool "$@"
}

# build_containerd VERSION: builds containerd. It sets the version that containerd reports to plugins. containerd 2.2
# does not report the version of NRI, so the NRI library of a plugin derives the version of NRI from that of containerd.
build_containerd() {
  local root=github.com/containerd/containerd/v2/cmd version=github.com/containerd/containerd/v2/version.Version name
  [ -x "$out/containerd" ] && [ -x "$out/containerd-shim-runc-v2" ] && [ -x "$out/ctr" ] && return
  module containerd "$root"/{containerd,containerd-shim-runc-v2,ctr}"@$1"
  for name in containerd containerd-shim-runc-v2 ctr; do
    CGO_ENABLED=0 nice go build -tags no_btrfs -ldflags "-s -w -X $version=$1" -o "$out/$name.new" "$root/$name"
    mv "$out/$name.new" "$out/$name"
  done
}

# build_runc VERSION: builds runc with libseccomp, which containerd's default seccomp profile needs.
build_runc() {
  [ -x "$out/runc" ] && return
  ensure_packages gcc pkg-config
  link_seccomp "$work/seccomp"
  module runc "github.com/opencontainers/runc@$1"
  CGO_ENABLED=1 nice go build -tags "seccomp netgo osusergo" -ldflags "-s -w -extldflags -static" -o "$out/runc.new" github.com/opencontainers/runc
  mv "$out/runc.new" "$out/runc"
}

# build_crun VERSION: unpacks crun of Debian 13 and its libraries, because this machine's libraries may be older. apt
# checks the signature of the archive. apt uses separate package lists, so that it never installs packages of Debian 13
# on this machine.
build_crun() {
  [ -x "$out/usr/bin/crun" ] && return
  local apt=$work/apt libraries=lib/x86_64-linux-gnu loader=lib64/ld-linux-x86-64.so.2 root=$work/debian options library archive
  archive=$(apt-get indextargets --format '$(REPO_URI)' | grep -m 1 '/debian/$')
  mkdir -p "$apt"/{lists,archives}/partial "$work/packages"
  : >"$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive trixie main" >"$apt/sources.list"
  options=(-qq -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" -o "Dir::Etc::sourcelist=$apt/sources.list"
    -o Dir::Etc::sourceparts=- -o Acquire::Languages=none -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  cd "$work/packages"
  apt-get "${options[@]}" download crun libc6 libcap2 libgcc-s1 libseccomp2 libsystemd0 libyajl2
  for package in *.deb; do dpkg-deb -x "$package" "$root"; done

  [[ $("$root/usr/$loader" --library-path "$root/usr/$libraries" "$root/usr/bin/crun" --version) == "crun version $1"$'\n'* ]] ||
    { echo "the archive's crun is not version $1: update CRUN_VERSION" >&2; return 1; }
  install -D "$root/usr/$loader" "$out/$loader"
  for library in $("$root/usr/$loader" --library-path "$root/usr/$libraries" --list "$root/usr/bin/crun" | grep -o "$root/[^ ]*"); do
    install -D "$library" "$out/$libraries/$(basename "$library")"
  done
  install -D "$root/usr/bin/crun" "$out/usr/bin/crun"
}

for program in "${@:?$usage}"; do
  case $program in
    containerd@* | runc@* | crun@*) "build_${program%@*}" "${program#*@}" ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
done
