#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# generate-crd.sh DIR: generates, below DIR, the deepcopy code and the CRDs from the Go types in api/nodeqos.
# controller-gen must be in PATH; "make generate" and "make verify-generated" put it there.
set -euo pipefail
out=$(realpath "$1")
cd "$(dirname "$0")/.."
types=api/nodeqos/v1alpha1 deepcopy=$out/api/nodeqos/v1alpha1/zz_generated.deepcopy.go
node=$out/deploy/kubernetes/crd.yaml limits=$out/deploy/policies/crd.yaml
volumes=$out/deploy/storage-statefulsets/crd.yaml
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

header() { # MARK: prints the first lines of every file, each after the comment marker MARK
  printf '%s Copyright The qos-nri-plugin Authors.\n%s SPDX-License-Identifier: Apache-2.0\n' "$1" "$1"
}

header '#' >"$fresh/header.yaml"
controller-gen paths="./$types" \
  object output:object:dir="$fresh/object" \
  crd:headerFile="$fresh/header.yaml" output:crd:dir="$fresh/crd"
# The header comes before the build tag. By this tag, controller-gen ignores its own earlier output.
{ header //; echo; cat "$fresh/object/zz_generated.deepcopy.go"; } >"$fresh/deepcopy.go"
mkdir -p "$(dirname "$deepcopy")" "$(dirname "$node")" "$(dirname "$limits")" "$(dirname "$volumes")"
cat "$fresh/deepcopy.go" >"$deepcopy"
cat "$fresh/crd/qos.noderesource.dev_nodeqosresources.yaml" >"$node"
cat "$fresh/crd/qos.noderesource.dev_qoslimitranges.yaml" >"$limits"
cat "$fresh/crd/qos.noderesource.dev_statefulsetvolumes.yaml" >"$volumes"
