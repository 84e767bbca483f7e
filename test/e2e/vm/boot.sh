#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# boot.sh DIR intel|amd [KERNEL ARGUMENT…]: boots the test VM, which runs DIR/share/run as root. This process becomes QEMU.
# The VM mounts DIR/share at /share. If DIR/programs exists, its content is copied into the VM's memory at /opt; that of
# DIR/root is copied to /. The disks /dev/vda (2 GiB) and /dev/vdb (256 MiB) are empty. The kernel's console goes to
# DIR/console.log. The standard input and output of "run" are those of this script. Environment variables:
# - QOS_CGROUP=v1: the VM uses cgroup v1 instead of v2.
# - QOS_INIT=systemd: the first process of the VM is the systemd of this machine, and "run" is a service.
# - QOS_HOST_PROGRAMS: further programs of this machine, which are copied into the VM.
# - QOS_NIC, QOS_SMP: the values of QEMU's options -nic and -smp.
# - QOS_ICOUNT: the value of its option -icount. The clock of the VM then counts instructions, so that a busy host does not look like a
#   busy VM. While the VM is idle, its clock is that of the host.
# - QOS_VDB: more options of the second disk, e.g. a limit of its speed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
dir=$(realpath "${1:?usage: boot.sh DIR intel|amd [KERNEL ARGUMENT…]}")
# Without five-level page tables and protection checks of memory accesses, the emulated CPU saves a tenth of its time.
# Without ERMS and FSRM the kernel copies words, not bytes.
cpu=max,-la57,-smap,-smep,-pku,-umip,-erms,-fsrm
case ${2:-intel} in
  intel) cpu+=,vendor=GenuineIntel ;;
  amd) ;;
  *) echo "unknown vendor \"$2\": intel or amd" >&2; exit 2 ;;
esac
shift 2

# put_programs DIR PROGRAM…: copies programs with the libraries that they are linked with.
put_programs() {
  local root=$1 file
  shift
  for file in "$@" $(ldd "$@" | grep -o '/[^ ]*\.so[^ ]*' | sort -u); do
    install -D -m 755 "$(realpath "$file")" "$root$file"
  done
}

mkdir -p "$dir/initrd/bin" "$dir/initrd/opt"
[ ! -d "$dir/programs" ] || cp -rL "$dir/programs/." "$dir/initrd/opt/"
cp "$(command -v busybox)" "$dir/initrd/bin/"
install -m 755 "$here/init" "$dir/initrd/init"
read -ra host_programs <<<"${QOS_HOST_PROGRAMS:-}"
[ "${QOS_INIT:-}" != systemd ] || host_programs+=(/lib/systemd/systemd /bin/systemctl)
[ ${#host_programs[@]} = 0 ] || put_programs "$dir/initrd/host" "${host_programs[@]}"
[ ! -d "$dir/root" ] || { mkdir -p "$dir/initrd/host" && cp -r "$dir/root/." "$dir/initrd/host/"; }
(cd "$dir/initrd" && find . | cpio -o -H newc --quiet) >"$dir/initrd.cpio"
truncate -s 2G "$dir/vda"
truncate -s 256M "$dir/vdb"

# no_timer_check: on a busy host, the kernel could otherwise conclude that its timer does not work. thread=single: on a busy
# host, one thread for both CPUs is not slower, and no CPU spins while it waits for a CPU that the host does not run.
# mitigations=off: the kernel's mitigations for CPU bugs only cost time here.
# Each half of the memory is a NUMA node.
exec qemu-system-x86_64 -accel tcg,thread=single ${QOS_ICOUNT:+-icount "$QOS_ICOUNT"} -cpu "$cpu" -smp "${QOS_SMP:-2,sockets=2}" -m 4096 \
  -object memory-backend-ram,id=half0,size=2G -object memory-backend-ram,id=half1,size=2G \
  -numa node,memdev=half0 -numa node,memdev=half1 \
  -display none -no-reboot -nic "${QOS_NIC:-none}" -kernel "$KERNEL" -initrd "$dir/initrd.cpio" \
  -append "console=ttyS0 quiet panic=1 no_timer_check mitigations=off QOS_CGROUP=${QOS_CGROUP:-v2} QOS_INIT=${QOS_INIT:-} $*" \
  -serial "file:$dir/console.log" -serial stdio -monitor none \
  -virtfs "local,path=$dir/share,mount_tag=share,security_model=none,multidevs=remap" \
  -drive "file=$dir/vda,format=raw,if=virtio" -drive "file=$dir/vdb,format=raw,if=virtio${QOS_VDB:+,$QOS_VDB}"
