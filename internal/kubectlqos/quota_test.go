// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

const kepQuota = `apiVersion: v1
kind: ResourceQuota
metadata:
  name: limits
spec:
  qosResources:
    pod:
    - name: network
      classes:
      - name: slow
    container:
    - name: rdt
      classes:
      - name: gold
        capacity: 2
      - name: bronze
`

const stockQuota = `apiVersion: v1
kind: ResourceQuota
metadata:
  name: limits
  annotations:
    qos.noderesource.dev/allowed-classes: qos.noderesource.dev/network=slow,rdt=gold,rdt=bronze
spec:
  hard:
    requests.qos.noderesource.dev/rdt.gold: "2"
`

const policyNote = "note: the classes that the ResourceQuota does not list are forbidden only where the policies qos-allowed-classes and qos-allowed-classes-of-claims are installed\n"

func TestQuotaPrints(t *testing.T) {
	for _, test := range []struct {
		name string
		run  fileRun
		want answer
	}{
		{
			"a quota with the classes of the cluster",
			fileRun{stdin: strings.NewReader(kepQuota), args: []string{"quota", "-f", "-"}},
			answer{0, stockQuota, networkNotes + policyNote},
		},
		{
			"a quota with the classes of class files, in a namespace",
			fileRun{
				files: map[string]string{"q.yaml": kepQuota, "c.yaml": strings.Replace(classFile, "bronze: {}", "bronze: {}, silver: {}", 1)},
				args:  []string{"quota", "-q", "-n", "shop", "-f", "DIR/q.yaml", "--class-files", "DIR/c.yaml"},
			},
			answer{0, strings.Replace(stockQuota, "limits\n", "limits\n  namespace: shop\n", 1), ""},
		},
		{
			"an error if the quota names another namespace",
			fileRun{stdin: strings.NewReader(strings.Replace(kepQuota, "limits\n", "limits\n  namespace: data\n", 1)), args: []string{"quota", "-n", "shop", "-f", "-"}},
			answer{program.ExitProblems, "", `stdin:5: ResourceQuota limits: metadata.namespace: is "data", but the command line has "shop"; remove one of the two` +
				"\nError: there is 1 problem; nothing was written\n"},
		},
		{
			"a note if a field of the quota limits nothing",
			fileRun{stdin: strings.NewReader(kepQuota + "  hard:\n    limits.qos.noderesource.dev/rdt.gold: 2\n"), args: []string{"quota", "-f", "-"}},
			answer{0, strings.Replace(stockQuota, "  hard:\n", "  hard:\n    limits.qos.noderesource.dev/rdt.gold: 2\n", 1),
				networkNotes + "note: limits.qos.noderesource.dev/rdt.gold limits nothing, because Kubernetes never enforces this prefix for extended resources; " +
					"write requests.qos.noderesource.dev/rdt.gold\n" + policyNote},
		},
		{
			"an error for an object of another kind",
			fileRun{stdin: strings.NewReader(kepPod), args: []string{"quota", "-f", "-"}},
			answer{program.ExitProblems, "", "stdin:1: Pod web: is not a ResourceQuota; use \"kubectl qos convert\" for it\nError: there is 1 problem; nothing was written\n"},
		},
		{
			"an error if the quota needs no conversion",
			fileRun{stdin: strings.NewReader(stockQuota), args: []string{"quota", "-f", "-"}},
			answer{program.ExitProblems, "", "stdin:1: ResourceQuota limits: has no spec.qosResources; it needs no conversion\nError: there is 1 problem; nothing was written\n"},
		},
		{
			"an error if the input is empty",
			fileRun{args: []string{"quota", "-f", "-"}},
			answer{program.ExitProblems, "", "stdin: has no ResourceQuota; pass a file that has one\nError: there is 1 problem; nothing was written\n"},
		},
		{
			"the usage, without a file",
			fileRun{args: []string{"quota"}},
			answer{program.ExitUsage, "", "Error: usage: exactly one FILE is required, not 0; pass it with -f; see \"kubectl qos quota --help\"\n"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := test.run.run(t)
			wantAnswer(t, test.want, got)
		})
	}
}
