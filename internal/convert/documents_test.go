// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import "testing"

const (
	oneRequest = "spec: {containers: [{resources: {qosResources: [{name: rdt, class: gold}]}}]}\n"
	oneLimit   = "spec: {containers: [{resources: {limits: {qos.noderesource.dev/rdt.gold: 1}}}]}\n"
)

func TestOnlyDocumentsWithRequestsAreRewritten(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{
			"other documents are copied byte by byte", "a:   [1,2]\n\n\nb:  x\n--- # why\n" + oneRequest + "---\n\nc:  &d {e:  f}\nd:  *d\n",
			"a:   [1,2]\n\n\nb:  x\n--- # why\n" + oneLimit + "---\n\nc:  &d {e:  f}\nd:  *d\n",
		},
		{"a document after a directive", "%YAML 1.1\n---\n" + oneRequest, "%YAML 1.1\n---\n" + oneLimit},
		{"a document on the line of its marker", "a:  1\n--- {" + oneRequest[:len(oneRequest)-1] + "}\n", "a:  1\n---\n{" + oneLimit[:len(oneLimit)-1] + "}\n"},
		{"a document with Windows line ends", "a:  1\r\n---\r\n" + oneRequest, "a:  1\r\n---\r\n" + oneLimit[:len(oneLimit)-1] + "\r\n"},
		{"a document before an empty one", oneRequest + "---\n# none\n", oneLimit + "---\n# none\n"},
		{"a document beside a text that looks like a marker", oneRequest + "---\na: |\n  ---\n  b\n---x: 1\n", oneLimit + "---\na: |\n  ---\n  b\n---x: 1\n"},
	} {
		t.Run(test.name, func(t *testing.T) { wantResult(t, test.text, toLimits(), test.want) })
	}
}
