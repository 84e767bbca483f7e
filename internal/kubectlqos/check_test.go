// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// problems returns an answer of check with a number of problems.
func problems(number int, out string) answer {
	return answer{program.ExitProblems, out, "Error: " + config.Problems(number).Error() + "\n"}
}

func TestCheckSkipsObjectsOfOtherKindsInADirectory(t *testing.T) {
	const (
		classFile = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources: []\n"
		roles     = "apiVersion: v1\nkind: ServiceAccount\n---\napiVersion: v1\nkind: ServiceAccount\n"
		limits    = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSLimitRange\n"
	)

	for _, test := range []struct {
		name  string
		files map[string]string
		path  string // that is checked
		want  answer
	}{
		{"beside a class file, with a note", map[string]string{"classes.yaml": classFile, "limits.yaml": limits, "roles.yaml": roles}, "DIR", answer{
			Out: "skipped files of other kinds: limits.yaml, roles.yaml\n1 file, 0 resources, 0 classes: OK (not checked against this machine)\n"}},
		{"but reports a directory without a class file", map[string]string{"limits.yaml": limits, "roles.yaml": roles}, "DIR", problems(1,
			"skipped files of other kinds: limits.yaml, roles.yaml\nDIR has no class file; a class file has the kind QOSClassConfig\n")},
		{"but reports a class file of another version", map[string]string{"classes.yaml": strings.Replace(classFile, "v1alpha1", "v9", 1)}, "DIR",
			problems(1, `DIR/classes.yaml:1: apiVersion: is "qos.noderesource.dev/v9"; only qos.noderesource.dev/v1alpha1 is known`+"\n")},
		{"but reports a file without a kind", map[string]string{"classes.yaml": classFile, "values.yaml": "apiVersion: v1\n"}, "DIR", problems(2,
			"DIR/values.yaml:1: apiVersion: is \"v1\"; only qos.noderesource.dev/v1alpha1 is known\n"+
				"DIR/values.yaml:1: kind: is missing; write kind: QOSClassConfig\n")},
		{"but reports a file that the command line names", map[string]string{"limits.yaml": limits}, "DIR/limits.yaml",
			problems(1, `DIR/limits.yaml:2: kind: is "QOSLimitRange"; only QOSClassConfig is known`+"\n")},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := fileRun{files: test.files, args: []string{"check", test.path}}.run(t)
			wantAnswer(t, test.want, got)
		})
	}
}

func TestCheckChecksEachFile(t *testing.T) {
	const good = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources: []\n"
	files := map[string]string{"bad.yaml": strings.Replace(good, "v1alpha1", "v9", 1), "good.yaml": good}
	got, _ := fileRun{files: files, args: []string{"check", "DIR/bad.yaml", "DIR/good.yaml"}}.run(t)
	wantAnswer(t, problems(1, `DIR/bad.yaml:1: apiVersion: is "qos.noderesource.dev/v9"; only qos.noderesource.dev/v1alpha1 is known`+
		"\n1 file, 0 resources, 0 classes: OK (not checked against this machine)\n"), got)
}

func TestCheckNeedsAFile(t *testing.T) {
	wantAnswer(t, answer{Code: 2, Errors: "Error: usage: no FILE is named; see \"kubectl qos check --help\"\n"}, newRig(t).run(t, "check"))
}

// TestCheckReportsPartitionsThatFitIntoNoCache expects the words that a node uses for the same files.
func TestCheckReportsPartitionsThatFitIntoNoCache(t *testing.T) {
	const (
		ok   = "1 file, 1 resource, 2 classes: OK (not checked against this machine)\n"
		head = "DIR/a.yaml:6: resources[0].rdt.partitions: "
	)
	for _, test := range []struct{ name, a, b, want string }{
		{"all of a cache", "l3Allocation: 60%", "l3Allocation: 40%", ok},
		{"more than all", "l3Allocation: 70%", "l3Allocation: 70%",
			head + "L3, unified: the shares of the partitions (a 70%, b 70%) add up to 140%; reduce them to 100% or less\n"},
		{"more than all of L2, and of L3", "l2Allocation: 70%, l3Allocation: 100%", "l2Allocation: 31%, l3Allocation: 1%",
			head + "L2, unified: the shares of the partitions (a 70%, b 31%) add up to 101%; reduce them to 100% or less\n" +
				head + "L3, unified: the shares of the partitions (a 100%, b 1%) add up to 101%; reduce them to 100% or less\n"},
		{"more than all for code", "l3Allocation: {all: {unified: 50%, code: 60%, data: 50%}}", "l3Allocation: {all: {unified: 50%, code: 60%, data: 50%}}",
			head + "L3, code: the shares of the partitions (a 60%, b 60%) add up to 120%; reduce them to 100% or less\n"},
		{"more than all of one cache ID", "l3Allocation: {all: 50%, 2-5: 60%}", "l3Allocation: {all: 50%, 4: 50%}",
			head + "L3 2, unified: the shares of the partitions (a 60%, b 50%) add up to 110%; reduce them to 100% or less\n"},
		{"all of each cache ID that has a setting", "l3Allocation: {0: 60%, 1: 50%}", "l3Allocation: {0: 40%, 1: 50%}", ok},
		{"masks that overlap", "l3Allocation: '0xff'", "l3Allocation: '0x180'",
			head + `L3, unified: partitions "a" (0xff) and "b" (0x180) overlap; give each partition separate bits` + "\n"},
		{"masks and per cent", "l3Allocation: '0xff'", "l3Allocation: 20%",
			head + `L3, unified: partition "a" has 0xff and partition "b" has 20%; give all partitions per cent, or all of them sizes or masks` + "\n"},
		{"memory bandwidth, which partitions do not divide", "mbAllocation: [70%]", "mbAllocation: [70%]", ok},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n- name: k8s.io/rdt\n  rdt:\n    partitions:\n" +
				"      a: {" + test.a + ", classes: {gold: }}\n      b: {" + test.b + ", classes: {tin: }}\n"
			if got, _ := (fileRun{files: map[string]string{"a.yaml": text}, args: []string{"check", "DIR/a.yaml"}}).run(t); got.Out != test.want {
				t.Errorf("output:\n%s\nwant:\n%s", got.Out, test.want)
			}
		})
	}
}
