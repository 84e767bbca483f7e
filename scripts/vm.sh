#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# vm.sh intel|amd [KERNEL ARGUMENT…]: starts a shell in the VM of test/e2e/vm, with real resctrl and two disks. The programs in
# bin/ and containerd, ctr and runc are in /share/bin, which is in PATH; /share/config has the checkout's class files.
# QOS_CGROUP=v1 selects cgroup v1, and QOS_INIT=systemd a machine with systemd. The VM ends with the shell, and all files
# written in the VM are lost.
set -euo pipefail
cd "$(dirname "$0")/.."
eval "$(test/e2e/vm/setup.sh)"

dir=$(mktemp -d)
terminal=$(stty -g 2>/dev/null || true)
restore() {
  [ -z "$terminal" ] || stty "$terminal"
  rm -rf "$dir"
}
trap restore EXIT

mkdir -p "$dir/share/bin"
find bin "$RUNTIMES" -maxdepth 1 -type f -executable -exec cp -t "$dir/share/bin" {} +
cp -r config "$dir/share/config"
cat >"$dir/share/run" <<'RUN'
#!/bin/sh
stty -F /dev/ttyS1 sane
cd /root
PATH=/share/bin:$PATH PS1='vm \w # ' setsid -c sh -i
RUN
chmod +x "$dir/share/run"

# The VM's terminal echoes the input, and also receives ^C.
[ -z "$terminal" ] || stty raw -echo
test/e2e/vm/boot.sh "$dir" "$@"
