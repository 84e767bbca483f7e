#!/bin/bash
# Copyright The qos-nri-plugin Authors.
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh [short]: installs or builds what the Kubernetes tests need: Debian packages, etcd, Kubernetes, CSI sidecars, containerd,
# runc, Helm, Prometheus, and the code of Argo CD and Flux; with "short", only what "go test -short" needs. It skips what exists
# already, and prints the paths that the tests use, as NAME=VALUE. Only the installation of Debian packages needs root.
# QOS_E2E_KUBERNETES=1.37 selects another Kubernetes than 1.36.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../vm/env.sh"
ensure_packages iproute2 util-linux e2fsprogs >&2
# version MODULE [DIR]: prints the version of the module in DIR/go.mod. DIR is programs by default.
version() { sed -n "s#^\t$1 \(v[^ ]*\).*#\1#p" "$here/${2:-programs}/go.mod"; }
programs=programs${QOS_E2E_KUBERNETES:+-$QOS_E2E_KUBERNETES}
kubernetes=$CACHE/kubernetes-$(version k8s.io/kubernetes "$programs")-etcd-$(version go.etcd.io/etcd/server/v3 "$programs")
once "$kubernetes/kubelet" "$here/build.sh" "$kubernetes" "$programs" >&2
once "$RUNTIMES/runc" "$here/../vm/build-runtimes.sh" "$RUNTIMES" "containerd@$CONTAINERD_VERSION" "runc@$RUNC_VERSION" >&2
helm=$CACHE/helm-$(sed -n 's#^\thelm.sh/helm/v4 \(v[^ ]*\).*#\1#p' "$here/../../chart/go.mod")
once "$helm/helm" "$here/build-helm.sh" "$helm" >&2
sidecars=$CACHE/sidecars-provisioner-$(version github.com/kubernetes-csi/external-provisioner/v6 sidecars/provisioner)
sidecars=$sidecars-resizer-$(version github.com/kubernetes-csi/external-resizer/v2 sidecars/resizer)
once "$sidecars/csi-resizer" "$here/build-sidecars.sh" "$sidecars" >&2
prometheus=$CACHE/prometheus-$(sed -n 's#^\tgithub.com/prometheus/prometheus \(v[^ ]*\).*#\1#p' "$here/../../../tools/prometheus/go.mod")
once "$prometheus/prometheus" "$here/build-prometheus.sh" "$prometheus" >&2
if [ "${1:-}" != short ]; then
  gitops=$CACHE/gitops-$(cat "$here"/gitops/*/{main.go,go.sum} | sha256sum | cut -c1-12)
  once "$gitops/argocd" "$here/build-gitops.sh" "$gitops" >&2
  echo "GITOPS=$gitops"
fi
echo "KUBERNETES=$kubernetes"
echo "RUNTIMES=$RUNTIMES"
echo "HELM=$helm"
echo "SIDECARS=$sidecars"
echo "PROMETHEUS=$prometheus"
