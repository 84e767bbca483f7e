// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletdir recognizes the directories of the kubelet (pkg/kubelet/config/defaults.go of Kubernetes).
package kubeletdir

import "strings"

// IsVolume reports whether a path on the node is below a directory in which the kubelet mounts the pod's volumes or
// their subPaths.
func IsVolume(path, podUID string) bool {
	return strings.Contains(path, "/pods/"+podUID+"/volumes/") || strings.Contains(path, "/pods/"+podUID+"/volume-subpaths/")
}
