#!/bin/sh
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# cni.sh is a CNI plugin that connects each pod only with the node. It calls ip by its path, because the busybox shell
# of a VM has a built-in ip, which does not support veth.
set -eu
ip=/usr/sbin/ip
case $CNI_COMMAND in
  VERSION)
    echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'
    ;;
  ADD)
    config=$(cat)
    value() { echo "$config" | sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p"; }
    node=$(value node)
    pods=$(value pods)
    exec 9>/run/cni-addresses
    flock 9
    number=$(($(cat /run/cni-last 2>/dev/null || echo 1) + 1))
    echo "$number" >/run/cni-last
    address=$pods.$((number / 250)).$((number % 250 + 1))
    link=veth$number
    {
      $ip link add "$link" type veth peer name "$CNI_IFNAME" netns "$CNI_NETNS"
      $ip link set "$link" up
      $ip route add "$address/32" dev "$link"
      nsenter "--net=$CNI_NETNS" sh -c "$ip address add $address/32 dev $CNI_IFNAME && $ip link set $CNI_IFNAME up && \
        $ip route add $node dev $CNI_IFNAME && $ip route add default via $node dev $CNI_IFNAME"
    } >&2
    echo "{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"$address/32\"}],\"interfaces\":[],\"dns\":{}}"
    ;;
esac
