#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh TIME [PACKAGE…]: runs every fuzz target of the packages (all of this module, if none is given) for TIME each, one after
# another. It goes on after a failure, so that one run finds what all targets find, and fails at the end. The input that
# failed is in testdata/fuzz of the package: commit it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: fuzz.sh TIME [PACKAGE…]}
shift
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(./...)

# targets prints "DIRECTORY TARGET" for each target, found in the sources so that only packages that have any are built.
targets() {
  go list -f '{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}' \
    "${packages[@]}" | { grep . || true; } | xargs -r grep -HoP '^func \KFuzz\w+(?=\()' | sed 's#/[^/:]*:# #' || true
}

# late says whether all that failed is that Go's fuzzer was itself too late to stop at the end of its time, as it is on a busy
# machine: then there is no input that failed.
late() { grep -q 'context deadline exceeded' "$1" && ! grep -q 'Failing input written' "$1"; }

failed=() count=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
while read -r dir target; do
  count=$((count + 1))
  name=.${dir#"$PWD"}
  echo "== $name $target"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$name" 2>&1 | tee "$log" || late "$log" || failed+=("$name $target")
done < <(targets)

[ "$count" -gt 0 ] || { echo "no fuzz target found: something is wrong with this script" >&2; exit 1; }
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "$count fuzz targets ran for $time each, none failed"
