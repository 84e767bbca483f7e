// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

func TestAnnotationsOfMemoryQOSAreConverted(t *testing.T) {
	for _, test := range []struct{ name, before, after string }{
		{"for the pod", "    class.memory-qos.nri.io: silver\n", "    qos.noderesource.dev/pod: qos.noderesource.dev/memory=silver\n"},
		{"for a container", "    class.memory-qos.nri.io/main: bronze\n", "    container.qos.noderesource.dev/main: qos.noderesource.dev/memory=bronze\n"},
		{"for the system default", "    class.memory-qos.nri.io/main: \"\"\n", "    container.qos.noderesource.dev/main: \"qos.noderesource.dev/memory=\"\n"},
		{
			"beside an annotation of ours", "    qos.noderesource.dev/pod: rdt=gold\n    class.memory-qos.nri.io: silver\n",
			"    qos.noderesource.dev/pod: rdt=gold,qos.noderesource.dev/memory=silver\n",
		},
		{"of memory-policy for the pod", "    class.memory-policy.nri.io: spread\n", "    qos.noderesource.dev/pod: qos.noderesource.dev/memory-policy=spread\n"},
		{
			"of memory-policy for a container", "    class.memory-policy.nri.io/container.main: spread\n",
			"    container.qos.noderesource.dev/main: qos.noderesource.dev/memory-policy=spread\n",
		},
		{"an annotation with a value stays", "    memory.high.memory-qos.nri.io/main: max\n", "    memory.high.memory-qos.nri.io/main: max\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			results, err := convert.Convert([]convert.Input{{Name: "a.yaml", Text: []byte(annotated(test.before))}}, convert.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(annotated(test.after), string(results[0].Text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
