#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# boot-arm64.sh DIR [KERNEL ARGUMENT…]: boots a VM for arm64, whose kernel KERNEL emulates MPAM (emulate-mpam.py). This process becomes
# QEMU. The VM's memory has the files of DIR/root, and runs DIR/root/init. Standard output is the console.
set -euo pipefail
dir=$(realpath "${1:?usage: boot-arm64.sh DIR [KERNEL ARGUMENT…]}")
shift
cpus=2
machine=(-accel tcg,thread=multi -cpu cortex-a76 -smp "$cpus" -m 1536 -display none -no-reboot -nic none)

(cd "$dir/root" && find . | cpio -o -H newc --quiet) >"$dir/initrd.cpio"
# The device tree of this machine, with an L2 of 1 MiB and an L3 of 16 MiB for each CPU.
qemu-system-aarch64 -machine "virt,dumpdtb=$dir/dtb" "${machine[@]}" >/dev/null 2>&1
for ((cpu = 0; cpu < cpus; cpu++)); do
  for level in 2 3; do
    node=/l$level-cache$cpu
    fdtput -c "$dir/dtb" "$node"
    fdtput -t s "$dir/dtb" "$node" compatible cache
    fdtput "$dir/dtb" "$node" cache-unified
    put() { fdtput -t i "$dir/dtb" "$node" "$1" "$2"; }
    put cache-level "$level"
    put cache-line-size 64
    put phandle $((0x9000 + level * 256 + cpu))
    put cache-size $((level == 2 ? 1 << 20 : 16 << 20))
    put cache-sets $((level == 2 ? 1024 : 16384))
  done
  fdtput -t i "$dir/dtb" "/l2-cache$cpu" next-level-cache $((0x9300 + cpu))
  fdtput -t i "$dir/dtb" "/cpus/cpu@$cpu" next-level-cache $((0x9200 + cpu))
done
exec qemu-system-aarch64 -machine virt "${machine[@]}" -kernel "$KERNEL" -initrd "$dir/initrd.cpio" -dtb "$dir/dtb" \
  -append "console=ttyAMA0 quiet panic=1 $*" -serial stdio -monitor none </dev/null
