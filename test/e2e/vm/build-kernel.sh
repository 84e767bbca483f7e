#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# build-kernel.sh OUT [PACKAGE [SCRIPT]]: builds a small kernel for QEMU without KVM, from Debian's kernel source. The kernel has the
# real resctrl, for which SCRIPT, by default emulate-rdt.py, emulates a CPU with RDT. It also has cgroup v1 and v2, blk-throttle, iocost,
# bfq, ext4, XFS and btrfs. The build takes about 9 minutes on 2 cores.
set -euo pipefail
out=$(realpath -m "${1:?usage: build-kernel.sh OUT [PACKAGE [SCRIPT]]}")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
KERNEL_PACKAGE=${2:-$KERNEL_PACKAGE}
[ ! -s "$out" ] || exit 0
ensure_packages "$KERNEL_PACKAGE" gcc make flex bison bc libelf-dev libssl-dev xz-utils python3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xf "/usr/src/$KERNEL_PACKAGE.tar.xz"
cd "$work/$KERNEL_PACKAGE"
python3 "$here/${3:-emulate-rdt.py}"

without=(
  # Devices that the VM does not have.
  AGP ATA BT CFG80211 DRM ETHERNET FB HID HWMON I2C IOMMU_SUPPORT MAC80211 MACINTOSH_DRIVERS MEDIA_SUPPORT MTD PCCARD RFKILL
  RTC_CLASS SCSI SERIO SOUND USB_SUPPORT VT WIRELESS WLAN XEN
  # Filesystems and network protocols.
  ISO9660_FS MSDOS_FS NFSD NFS_FS QUOTA VFAT_FS IPV6
  # Options that cost time in the build or at boot.
  AUDIT CPU_FREQ CRASH_DUMP DEBUG_FS DEBUG_INFO DEBUG_KERNEL EFI FTRACE HIBERNATION JUMP_LABEL KEXEC KPROBES MICROCODE MODULES
  POWERCAP PROFILING RAID6_PQ_BENCHMARK SECURITY_SELINUX SUSPEND SYSTEM_TRUSTED_KEYRING THERMAL WATCHDOG X86_MCE
)
with=(
  DEBUG_INFO_NONE X86_CPU_RESCTRL X86_CPU_RESCTRL_INTEL_AET NUMA
  # cgroup v2 and v1, with the options that runc requires.
  CGROUPS MEMCG MEMCG_V1 CPUSETS CPUSETS_V1 CGROUP_BPF BPF_SYSCALL CGROUP_CPUACCT CGROUP_DEVICE CGROUP_HUGETLB HUGETLBFS
  CGROUP_NET_CLASSID NET_CLS_CGROUP CGROUP_NET_PRIO CGROUP_PIDS CGROUP_SCHED CFS_BANDWIDTH PSI
  # Block I/O control.
  BLK_CGROUP BLK_CGROUP_IOCOST BLK_CGROUP_IOLATENCY BLK_CGROUP_IOPRIO BLK_DEV_THROTTLING IOSCHED_BFQ BFQ_GROUP_IOSCHED
  # Disks, shared folders and filesystems.
  MD BLK_DEV_DM BLK_DEV_LOOP BLK_DEV_NULL_BLK VIRTIO_BLK VIRTIO_PCI VIRTIO_CONSOLE NET_9P NET_9P_VIRTIO 9P_FS
  DEVTMPFS DEVTMPFS_MOUNT BTRFS_FS EXT4_FS XFS_FS FUSE_FS OVERLAY_FS TMPFS TMPFS_XATTR SWAP ZRAM
  # Options that containers and the plugin need.
  CONNECTOR PROC_EVENTS KEYS POSIX_MQUEUE SECCOMP SECCOMP_FILTER USER_NS VETH BRIDGE VIRTIO_NET NF_TABLES
)
make -s x86_64_defconfig kvm_guest.config
for option in "${without[@]}"; do ./scripts/config -d "$option"; done
for option in "${with[@]}"; do ./scripts/config -e "$option"; done
make -s olddefconfig
nice make -s -j"$(nproc)" bzImage
install -m 644 -D arch/x86/boot/bzImage "$out.new"
mv "$out.new" "$out"
