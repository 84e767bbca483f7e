// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkRecording saves what was applied to one cgroup, as a start hook does if the plugin writes the values itself.
func BenchmarkRecording(b *testing.B) {
	const record = `{"class":"slow","values":{"8:0":[[10000000,5000000,0,0]],"8:16":[[10000000,5000000,0,0]],"io.bfq.weight":[[200,0,0,0]]}}`
	for _, others := range []int{30, 250, 1000} {
		c := open(filepath.Join(b.TempDir(), "changes.json"), "boot")
		all := map[string][]byte{}
		for i := range others {
			all[fmt.Sprintf("kubepods-burstable-pod11111111_2222_3333_4444_%012d.slice:cri-containerd:%064x", i, i)] = []byte(record)
		}
		must(b, c.SetMemory(all))
		b.Run(fmt.Sprintf("%d records", others), func(b *testing.B) {
			for b.Loop() {
				must(b, c.SetMemory(map[string][]byte{"a": []byte(record)}))
			}
		})
	}
}
