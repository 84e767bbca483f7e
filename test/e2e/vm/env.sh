# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The other scripts source this file. It defines the versions of the programs to build, and the directories for them outside
# of the checkout. The name of a directory contains the versions, so that a new version never uses files of an old one.
# shellcheck shell=bash disable=SC2034
CONTAINERD_VERSION=v2.4.2
# Older versions of containerd for the core cases: the version with long-term support, and the oldest version that can
# set RDT groups.
CONTAINERD_2_3_VERSION=v2.3.7
CONTAINERD_2_2_VERSION=v2.2.1
RUNC_VERSION=v1.5.2
CRIO_VERSION=v1.37.0
# This is the version in Debian 13, because the crun of Debian 12 is too old.
CRUN_VERSION=1.21
KERNEL_PACKAGE=linux-source-6.12
# Increase KERNEL_RECIPE when a change of build-kernel.sh or emulate-rdt.py changes the built kernel.
KERNEL_RECIPE=4
# A newer kernel, for features of resctrl that the other one lacks. Increase its recipe with emulate-rdt-7.3.py.
KERNEL_7_3_PACKAGE=linux-source-7.3
KERNEL_7_3_RECIPE=1
# The same kernel for arm64. Increase its recipe with build-kernel-arm64.sh and emulate-mpam.py.
KERNEL_ARM64_RECIPE=2

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/qos-nri-plugin
RUNTIMES=$CACHE/runtimes-containerd-$CONTAINERD_VERSION-runc-$RUNC_VERSION
CRIO=$CACHE/crio-$CRIO_VERSION
CONTAINERD_2_3=$CACHE/containerd-$CONTAINERD_2_3_VERSION
CONTAINERD_2_2=$CACHE/containerd-$CONTAINERD_2_2_VERSION
CRUN=$CACHE/crun-$CRUN_VERSION
KERNEL_7_3=${QOS_E2E_KERNEL_7_3:-$CACHE/kernel-7.3-$KERNEL_7_3_RECIPE/bzImage}
KERNEL_ARM64=${QOS_E2E_KERNEL_ARM64:-$CACHE/kernel-arm64-$KERNEL_ARM64_RECIPE/Image.gz}
KERNEL=${KERNEL:-${QOS_E2E_KERNEL:-$CACHE/kernel-${KERNEL_PACKAGE#linux-source-}-$KERNEL_RECIPE/bzImage}}

# once FILE COMMAND…: runs a command that builds a file, unless the file exists. Only one command runs at a time,
# because concurrent runs share the built files. If the file exists, once returns without waiting for the lock.
once() {
  [ ! -s "$1" ] || return 0
  mkdir -p "$CACHE"
  (
    flock 9
    [ -s "$1" ] || "${@:2}" # another run may have built the file meanwhile
  ) 9>"$CACHE/lock"
}

# ensure_packages PACKAGE…: installs those Debian packages that are missing, or says what to install.
ensure_packages() {
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "please install, as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  mkdir -p "$CACHE"
  (
    flock 8 # apt refuses to run twice at once
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  ) 8>"$CACHE/apt-lock"
}

# link_seccomp DIR: unpacks Debian's libseccomp into DIR, without an installation, and sets the variables with which cgo
# links it.
link_seccomp() {
  local lib
  mkdir -p "$1"
  (cd "$1" && apt-get download -qq libseccomp-dev libseccomp2 && for package in *.deb; do dpkg-deb -x "$package" root; done)
  lib=$(dirname "$(find "$1/root/usr/lib" -name libseccomp.a)")
  sed "s#^prefix=.*#prefix=$1/root/usr#" "$lib/pkgconfig/libseccomp.pc" >"$1/libseccomp.pc"
  export PKG_CONFIG_PATH=$1 CGO_CFLAGS="-I$1/root/usr/include" CGO_LDFLAGS="-L$lib"
}
