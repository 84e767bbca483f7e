#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# inside.sh DIR COMMAND…: prepares new mount, PID and network namespaces for a test node, and runs the command there.
# The caller must have created the namespaces. The files that the node writes are in DIR. The kernel and the cgroups are
# those of the machine.
set -euo pipefail
dir=$1
shift
mount --make-rprivate /
mount --make-rshared / # shared within the new namespace, because some mounts of pods require shared mounts
mount -t proc proc /proc

# These mounts put directories of DIR at the usual paths of a node. The overlays permit new directories where the
# machine has none.
machine=$dir/machine
mkdir -p "$machine"/{run,log,kubelet,containerd,lib,lib.work,etc,etc.work}
mount -t overlay overlay -o "lowerdir=/var/lib,upperdir=$machine/lib,workdir=$machine/lib.work" /var/lib
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$machine/etc,workdir=$machine/etc.work" /etc
mkdir -p /var/lib/{kubelet,containerd}
mount --bind "$machine/kubelet" /var/lib/kubelet
mount --bind "$machine/containerd" /var/lib/containerd
mount --bind "$machine/run" /run
mount --bind "$machine/log" /var/log

# The kubelet would write these kernel settings for the whole machine. With the mounts, it writes to files in DIR.
settings=$dir/sysctl
mkdir -p "$settings"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=$settings/$(tr / _ <<<"${setting%=*}")
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done

# 10.0.0.1 is the address of the API server's service. The API server itself listens on this address, because there is
# no kube-proxy.
ip link set lo up
ip address add 10.0.0.1/32 dev lo
hostname node-1
exec "$@"
