// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podeviction

import (
	"k8s.io/apimachinery/pkg/types"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// wish is a pod that is to be evicted.
type wish struct {
	// uid is that by which the node knows the pod.
	uid             types.UID
	namespace, name string
	// why is a line for people, of all of its containers.
	why string
}

// wishesOf are the pods of evictions, each once, in their order.
func wishesOf(evictions []*qosv1alpha1.Eviction) []wish {
	var list []wish
	at := map[types.UID]int{}
	for _, e := range evictions {
		uid := types.UID(e.GetPodUid())
		i, seen := at[uid]
		if !seen {
			at[uid] = len(list)
			list = append(list, wish{uid: uid, namespace: e.GetNamespace(), name: e.GetPod(), why: e.GetMessage()})
			continue
		}
		list[i].why += "; " + e.GetMessage()
	}
	return list
}
