#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# release.sh: builds the release of the tag $VERSION and pushes image and chart to $REGISTRY, signed with $KEY. It writes the files of
# the release into bin/release. docs/releases.md describes the variables and the files.
set -euo pipefail
cd "$(dirname "$0")/.."
out=bin/release source=https://github.com/qos-nri/qos-nri-plugin

fail() {
  printf 'release: %s\n' "$1" >&2
  exit 1
}

# check_input: reports wrong input before the build, which takes minutes.
check_input() {
  [[ $VERSION =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]] ||
    fail "VERSION=$VERSION is not a version; write for example VERSION=v1.2.3 or v1.2.3-rc.1"
  [ -n "$REGISTRY" ] || fail "REGISTRY is missing; name the registry, for example REGISTRY=registry.example/qos"
  [ -n "$KEY" ] || fail "KEY is missing; name a private key of cosign, or KEY=none for a release without signatures"
  tagged=$(git rev-parse -q --verify "refs/tags/$VERSION^{commit}") ||
    fail "there is no tag $VERSION; make it with git tag -a $VERSION"
  [ "$tagged" = "$(git rev-parse HEAD)" ] || fail "tag $VERSION points to another commit; run git switch --detach $VERSION"
  dirty=$(git status --porcelain | head -n 3)
  [ -z "$dirty" ] || fail "the checkout differs from tag $VERSION; commit or remove: $dirty"
}

# go_build OS/ARCH DIRECTORY PACKAGE…: builds static programs whose content depends only on the commit. The Makefile gives the reason for the tag.
go_build() {
  CGO_ENABLED=0 GOOS=${1%/*} GOARCH=${1#*/} go build -trimpath -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION" -o "$2/" "${@:3}"
}

# plugin_archive OS/ARCH: writes the archive of kubectl-qos, and its entry for krew's manifest.
plugin_archive() {
  local os=${1%/*} arch=${1#*/} dir=$work/kubectl/$1
  local archive=kubectl-qos_${os}_$arch.tar.gz
  go_build "$1" "$dir" ./cmd/kubectl-qos
  local program
  program=$(basename "$dir"/kubectl-qos*)
  tar --create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --mode=a=rX,u+w \
    -C "$dir" "$program" -C "$PWD" LICENSE -C "$work" third-party-licences.txt | gzip -n >"$out/$archive"
  cat >>"$out/qos.yaml" <<ENTRY
  - selector: {matchLabels: {os: $os, arch: $arch}}
    uri: $source/releases/download/$VERSION/$archive
    sha256: $(sha256sum "$out/$archive" | cut -d ' ' -f 1)
    bin: $program
    files: [{from: $program, to: .}, {from: LICENSE, to: .}, {from: third-party-licences.txt, to: .}]
ENTRY
}

# changes TAG: prints the commits since the previous tag, grouped by area.
changes() {
  local before
  printf '## %s (%s)\n' "$1" "$(git log -1 --format=%cs "$1")"
  if ! before=$(git describe --tags --abbrev=0 --match 'v[0-9]*' "$1^" 2>/dev/null); then
    printf '\nThe first release.\n'
    return
  fi
  git log --reverse --no-merges --format=%s "$before..$1" | awk '
    { area = "other"; text = $0 }
    match($0, /^[^ ]+(, [^ ]+)*: /) { area = substr($0, 1, RLENGTH - 2); text = substr($0, RLENGTH + 1) }
    { print area "\t" text }' | sort --stable --field-separator=$'\t' --key=1,1 | awk -F '\t' '
    $1 != area { area = $1; print "\n### " area "\n" }
    { print "- " $2 }'
}

# notes: prints the description of the release.
notes() {
  changes "$VERSION"
  cat <<NOTES

## Install

\`\`\`console
\$ helm install qos oci://${chart%@*} --version ${VERSION#v} --namespace qos-system --create-namespace
\`\`\`

- Image: \`$image\`
- Chart: \`$chart\`
- [Verify signatures, SBOM and provenance]($source/blob/$VERSION/docs/releases.md)
NOTES
}

check_input
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.mod)
export GOTOOLCHAIN GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0
epoch=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

go -C tools/image build -o "$work/" ./publish ./sbom
publish=("$work/publish" -registry "$REGISTRY" -name qos-nri-plugin -version "$VERSION")
[ "$KEY" = none ] || publish+=(-key "$KEY" -public-key "$out/cosign.pub" -sums "$out/SHA256SUMS")
"${publish[@]}" -check

rm -rf "$out"
mkdir -p "$out"
go -C tools/house run . -root "$PWD" -notices "$work/third-party-licences.txt"
sed "s/^  version: .*/  version: $VERSION/" deploy/krew/qos.yaml >"$out/qos.yaml"
for platform in $PLUGIN_PLATFORMS; do
  plugin_archive "$platform"
done
"$work/sbom" -name kubectl-qos -version "$VERSION" -source "$source" -licenses Apache-2.0 -epoch "$epoch" \
  -programs "$work/kubectl" -output "$out/kubectl-qos_sbom.spdx.json"
(cd "$out" && sha256sum kubectl-qos_*) >"$out/SHA256SUMS"
for platform in $IMAGE_PLATFORMS; do
  go_build "$platform" "$work/image/$platform" ./cmd/qos-*
done

"${publish[@]}" -programs "$work/image" -platforms "${IMAGE_PLATFORMS// /,}" -entrypoint qos-nri-plugin -chart deploy/chart \
  -epoch "$epoch" -revision "$(git rev-parse HEAD)" -source "$source" -licenses Apache-2.0 -builder "$BUILDER" \
  -documents "LICENSE,$work/third-party-licences.txt" | tee "$work/published"
image=$(sed -n 's/^image: //p' "$work/published")
chart=$(sed -n 's/^chart: //p' "$work/published")

notes >"$out/notes.md"
for tag in $(git tag --merged HEAD --sort=-version:refname 'v[0-9]*'); do
  changes "$tag"
  echo
done >"$out/CHANGELOG.md"
printf 'files: %s\n' "$out"
