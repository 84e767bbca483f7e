#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# boot.sh DIR intel|amd [KERNEL ARGUMENT…]: boots the test VM and runs DIR/share/run in it, as root; this process becomes QEMU.
# DIR/share is /share in the VM; what is in DIR/programs, if that exists, is in memory there, in /opt, and what is in DIR/root in /.
# /dev/vda (2 GiB) and /dev/vdb (256 MiB) are empty disks. The kernel's console goes to DIR/console.log, the streams of "run" are this
# script's. QOS_CGROUP=v1 gives it cgroup v1 instead of v2; QOS_INIT=systemd makes systemd, that of this machine, its first process, and
# "run" a service; QOS_HOST_PROGRAMS are more programs of this machine that it gets. QOS_NIC and QOS_SMP are QEMU's -nic and -smp.
# QOS_VDB is added to the options of the second disk, e.g. a limit of its speed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
dir=$(realpath "${1:?usage: boot.sh DIR intel|amd [KERNEL ARGUMENT…]}")
# Page tables of five levels and checks of each access to memory cost an emulated CPU a tenth of its time. Without ERMS and FSRM the
# kernel copies words, not bytes.
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

# A host without time to spare can make the kernel believe that its timer does not work, hence no_timer_check. One thread for both
# CPUs costs nothing there, and keeps one from waiting in a loop for the other, which may not be running. The kernel's mitigations for
# Intel's CPUs only cost time here.
exec qemu-system-x86_64 -accel tcg,thread=single -cpu "$cpu" -smp "${QOS_SMP:-2,sockets=2}" -m 4096 \
  -display none -no-reboot -nic "${QOS_NIC:-none}" -kernel "$KERNEL" -initrd "$dir/initrd.cpio" \
  -append "console=ttyS0 quiet panic=1 no_timer_check mitigations=off QOS_CGROUP=${QOS_CGROUP:-v2} QOS_INIT=${QOS_INIT:-} $*" \
  -serial "file:$dir/console.log" -serial stdio -monitor none \
  -virtfs "local,path=$dir/share,mount_tag=share,security_model=none,multidevs=remap" \
  -drive "file=$dir/vda,format=raw,if=virtio" -drive "file=$dir/vdb,format=raw,if=virtio${QOS_VDB:+,$QOS_VDB}"
