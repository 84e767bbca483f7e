#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# verify-generated.sh: fails if the node API's source has problems, or if the node API's Go code, the deepcopy code or the
# CRDs differ from the output of the generators. It changes nothing in the checkout. buf, controller-gen and the generators
# must be in PATH; "make verify-generated" puts them there.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

(cd api && buf lint && buf format --diff --exit-code && buf generate --output "$fresh/api")
scripts/generate-crd.sh "$fresh"

generated() { # DIR: the names of generated files below it
  (cd "$1" && find api -name '*.pb.go' -print0 -o -name 'zz_generated.*' -print0 && find deploy -name crd.yaml -print0)
}
stale=()
while IFS= read -r -d '' file; do
  cmp -s "$file" "$fresh/$file" || stale+=("$file")
done < <({ generated .; generated "$fresh"; } | sort -zu)
if [ ${#stale[@]} -gt 0 ]; then
  printf 'differs from the output of the generator: %s\n' "${stale[@]}" >&2
  echo 'run "make generate" and commit the result' >&2
  exit 1
fi
