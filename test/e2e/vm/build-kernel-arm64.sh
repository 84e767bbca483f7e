#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-kernel-arm64.sh OUT: builds a small kernel for arm64 from Debian's kernel source, whose MPAM driver finds CPUs and caches with MPAM
# (emulate-mpam.py). It has cgroup v2 and unix sockets, and no block devices. Only a kernel with EXPERT separates code and data with MPAM.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-kernel-arm64.sh OUT}")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
[ ! -s "$out" ] || exit 0
ensure_packages "$KERNEL_7_3_PACKAGE" gcc-aarch64-linux-gnu gcc make flex bison bc xz-utils python3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xf "/usr/src/$KERNEL_7_3_PACKAGE.tar.xz"
cd "$work/$KERNEL_7_3_PACKAGE"
python3 "$here/emulate-mpam.py"

with=(
  64BIT SMP PRINTK TTY SERIAL_AMBA_PL011 SERIAL_AMBA_PL011_CONSOLE NET UNIX BINFMT_ELF BINFMT_SCRIPT BLK_DEV_INITRD
  EPOLL SIGNALFD TIMERFD EVENTFD FUTEX SHMEM FILE_LOCKING INOTIFY_USER MULTIUSER POSIX_TIMERS MISC_FILESYSTEMS BUG MEMBARRIER RSEQ
  SYSFS PROC_FS SYSCTL TMPFS DEVTMPFS CGROUPS CGROUP_PIDS ARM64_MPAM RESCTRL_FS EXPERT HIGH_RES_TIMERS NO_HZ_IDLE
)
export ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-
make -s allnoconfig
for option in "${with[@]}"; do ./scripts/config -e "$option"; done
make -s olddefconfig
nice make -s -j"$(nproc)" Image.gz
install -m 644 -D arch/arm64/boot/Image.gz "$out.new"
mv "$out.new" "$out"
