#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# inside.sh DIR COMMAND…: runs the command where a node can be played without touching the machine's: to be started in mount, PID
# and network namespaces of its own. What the node writes is in DIR; the machine's kernel and its cgroups are the real ones.
set -euo pipefail
dir=$1
shift
mount --make-rprivate /
mount --make-rshared / # among the node's own, as on a node: some mounts of pods want it
mount -t proc proc /proc

# The machine's directories, at the paths that every node has. An overlay lets them be made where the machine has none.
machine=$dir/machine
mkdir -p "$machine"/{run,log,kubelet,containerd,lib,lib.work,etc,etc.work}
mount -t overlay overlay -o "lowerdir=/var/lib,upperdir=$machine/lib,workdir=$machine/lib.work" /var/lib
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$machine/etc,workdir=$machine/etc.work" /etc
mkdir -p /var/lib/{kubelet,containerd}
mount --bind "$machine/kubelet" /var/lib/kubelet
mount --bind "$machine/containerd" /var/lib/containerd
mount --bind "$machine/run" /run
mount --bind "$machine/log" /var/log

# The kubelet sets these for the whole machine; here it sets files.
settings=$dir/sysctl
mkdir -p "$settings"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=$settings/$(tr / _ <<<"${setting%=*}")
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done

# The address of the API server's service: without kube-proxy, the API server listens there itself.
ip link set lo up
ip address add 10.0.0.1/32 dev lo
hostname node-1
exec "$@"
