#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# mutants.sh BASE: inverts conditions, changes operators and swaps loop controls in the lines that have changed since the commit BASE, one
# at a time, and prints the changes that no test of their package notices. A change may be without effect, so the script does not fail.
# gremlins must be in PATH; "make mutants" puts it there.
set -euo pipefail
base=${1:?usage: mutants.sh BASE}
cd "$(dirname "$0")/.."
root=$PWD

# gremlins compares the names that "git diff" prints with names relative to the package, and takes a hunk for one range of changed lines.
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=diff.relative GIT_CONFIG_VALUE_0=true GIT_CONFIG_KEY_1=diff.context GIT_CONFIG_VALUE_1=0
changed=$(git diff --merge-base --name-only --diff-filter=d "$base" -- \
  'api/*.go' 'cmd/*.go' 'internal/*.go' 'pkg/*.go' ':!*_test.go' ':!*.pb.go' ':!*zz_generated*')
[ -n "$changed" ] || { echo "no code has changed since $base"; exit 0; }

for package in $(xargs -n 1 dirname <<<"$changed" | sort -u); do
  echo "== $package"
  cd "$root/$package"
  # The time limit of a mutant is a multiple of the time of the tests. It includes the compilation.
  gremlins unleash --diff "$base" --output-statuses lct --invert-logical --invert-loopctrl --timeout-coefficient 50 "$PWD"
done
