// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package objectbudget

import (
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// These are the longest values that the fields of a volume's status usually have, in bytes.
const (
	longestDevice = 32
	longestReason = 24
)

// VolumeSize returns the size that a volume of the spec has in the object: its entry in the spec, its entry in the status without a
// message, and the managed fields of both entries.
func VolumeSize(volume nodeqosv1alpha1.ClaimedVolume) int {
	status := nodeqosv1alpha1.VolumeStatus{
		ClaimedVolume: volume, State: nodeqosv1alpha1.VolumeNotEnforced, Reason: strings.Repeat("x", longestReason),
		Device: strings.Repeat("x", longestDevice), Since: &metav1.Time{Time: time.Unix(0, 0).UTC()},
	}
	status.Problem = ""

	// Server-side apply records the fields of an item below its key, which is JSON in a JSON string.
	key, err := json.Marshal(map[string]string{"podUID": volume.PodUID, "container": volume.Container, "path": volume.Path})
	if err != nil {
		return maxObject
	}
	const fields = `:{".":{},"f:claim":{},"f:class":{},"f:container":{},"f:path":{},"f:podUID":{}}`
	const ofSpec, ofStatus = fields + `"f:problem":{},`, fields + `"f:device":{},"f:message":{},"f:reason":{},"f:since":{},"f:state":{},`
	return Size(volume) + Size(status) + 2*Size("k:"+string(key)) + len(ofSpec) + len(ofStatus)
}
