#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes ready what the VM tests need: QEMU, the kernel, what runs in it, containerd, CRI-O and runc. Does nothing when all is there.
# Prints the paths that the tests use, as NAME=VALUE. Only installing Debian packages needs root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
ensure_packages qemu-system-x86 busybox-static cpio systemd conmon >&2
once "$KERNEL" "$here/build-kernel.sh" "$KERNEL" >&2
once "$RUNTIMES/runc" "$here/build-runtimes.sh" "$RUNTIMES" >&2
once "$CRIO/crio" "$here/build-crio.sh" "$CRIO" >&2
echo "KERNEL=$KERNEL"
echo "RUNTIMES=$RUNTIMES"
[ ! -x "$CRIO/crio" ] || echo "CRIO=$CRIO"
