#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh [short]: installs or builds what the VM tests need: QEMU, Debian packages for the VM, the kernel, containerd, CRI-O, runc and
# crun; with "short", only what "go test -short" needs. It skips what exists already, and prints the paths that the tests use, as
# NAME=VALUE. Only the installation of Debian packages needs root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
ensure_packages qemu-system-x86 busybox-static cpio systemd conmon xfsprogs btrfs-progs dmsetup >&2
once "$KERNEL" "$here/build-kernel.sh" "$KERNEL" >&2
if apt-cache show "$KERNEL_7_3_PACKAGE" >/dev/null 2>&1; then
  once "$KERNEL_7_3" "$here/build-kernel.sh" "$KERNEL_7_3" "$KERNEL_7_3_PACKAGE" emulate-rdt-7.3.py >&2
fi
once "$RUNTIMES/runc" "$here/build-runtimes.sh" "$RUNTIMES" "containerd@$CONTAINERD_VERSION" "runc@$RUNC_VERSION" >&2
once "$CRIO/crio" "$here/build-crio.sh" "$CRIO" >&2
if [ "${1:-}" != short ]; then
  once "$CONTAINERD_2_3/ctr" "$here/build-runtimes.sh" "$CONTAINERD_2_3" "containerd@$CONTAINERD_2_3_VERSION" >&2
  once "$CONTAINERD_2_2/ctr" "$here/build-runtimes.sh" "$CONTAINERD_2_2" "containerd@$CONTAINERD_2_2_VERSION" >&2
  ensure_packages qemu-system-arm device-tree-compiler >&2
  if apt-cache show "$KERNEL_7_3_PACKAGE" >/dev/null 2>&1; then
    once "$KERNEL_ARM64" "$here/build-kernel-arm64.sh" "$KERNEL_ARM64" >&2
  fi
  once "$CRUN/usr/bin/crun" "$here/build-runtimes.sh" "$CRUN" "crun@$CRUN_VERSION" >&2
fi
for name in KERNEL RUNTIMES CONTAINERD_2_3 CONTAINERD_2_2 CRUN; do echo "$name=${!name}"; done
[ ! -s "$KERNEL_7_3" ] || echo "KERNEL_7_3=$KERNEL_7_3"
[ ! -s "$KERNEL_ARM64" ] || echo "KERNEL_ARM64=$KERNEL_ARM64"
[ ! -x "$CRIO/crio" ] || echo "CRIO=$CRIO"
