#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh TIME [PACKAGE…]: runs every fuzz target of the packages (all of this module, if none is given) for TIME each, as
# many at once as there are CPUs. A failure does not stop the other targets; the exit code reports it. The failed input is in
# testdata/fuzz of the package: commit it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: fuzz.sh TIME [PACKAGE…]}
shift
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(./...)

# targets prints "DIRECTORY TARGET" for each target. It searches the sources, so that only packages with targets are built.
targets() {
  go list -f '{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}' \
    "${packages[@]}" | { grep . || true; } | xargs -r grep -HoP '^func \KFuzz\w+(?=\()' | sed 's#/[^/:]*:# #' || true
}

# late LOG: succeeds if no input failed, and the only error is that Go's fuzzer stopped after the end of its time. This can
# happen on a busy machine.
late() { grep -q 'context deadline exceeded' "$1" && ! grep -q 'Failing input written' "$1"; }

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# fuzz DIRECTORY TARGET: runs one target of a package. If the target fails, fuzz writes a file *.failed beside the log.
fuzz() {
  local log=$logs/$2-${1//\//_}
  go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -parallel 1 "$1" >"$log" 2>&1 || late "$log" || echo "$1 $2" >"$log.failed"
  echo "== $1 $2"
  if [ -e "$log.failed" ]; then cat "$log"; elif late "$log"; then echo "no input failed; the fuzzer stopped late"; else tail -n 3 "$log"; fi
}

count=0
while read -r dir target; do
  [ "$(jobs -pr | wc -l)" -lt "$(nproc)" ] || wait -n
  fuzz ".${dir#"$PWD"}" "$target" &
  count=$((count + 1))
done < <(targets)
wait

[ "$count" -gt 0 ] || { echo "no fuzz target found: something is wrong with this script" >&2; exit 1; }
if ls "$logs"/*.failed >/dev/null 2>&1; then
  echo "failed:" >&2
  cat "$logs"/*.failed >&2
  exit 1
fi
echo "$count fuzz targets ran for $time each, none failed"
