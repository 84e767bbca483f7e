#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# verify-generated.sh: fails when the node API's source has problems, or its Go code is not what the source makes. Touches nothing
# in the checkout. buf and the generators must be in PATH; "make verify-generated" sees to it.
set -euo pipefail
cd "$(dirname "$0")/../api"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

buf lint
buf format --diff --exit-code
buf generate --output "$fresh"
stale=()
while IFS= read -r -d '' file; do
  cmp -s "$file" "$fresh/$file" || stale+=("api/$file")
done < <({ find . -name '*.pb.go' -printf '%P\0'; cd "$fresh"; find . -name '*.pb.go' -printf '%P\0'; } | sort -zu)
if [ ${#stale[@]} -gt 0 ]; then
  printf 'not what api/buf.gen.yaml makes: %s\n' "${stale[@]}" >&2
  echo 'run "make generate" and commit the result' >&2
  exit 1
fi
