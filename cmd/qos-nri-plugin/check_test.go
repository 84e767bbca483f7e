// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// checkFixture is a directory of class files and a machine to check them on.
type checkFixture struct {
	*apitest.Node
	dir string
}

func newCheckFixture(t *testing.T, files map[string]string) *checkFixture {
	t.Helper()
	f := &checkFixture{Node: apitest.NewNode(), dir: t.TempDir()}
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(f.dir, name), []byte(strings.TrimPrefix(text, "\n")), 0o600))
	}
	return f
}

// check runs the command "check". In the answer, DIR replaces the path of the directory of class files.
func (f *checkFixture) check(t *testing.T, args ...string) answer {
	t.Helper()
	var out, errs strings.Builder
	cmd := newCheckCommandFor(func(*checkOptions) ([]classes.Kind, error) { return f.Kinds, nil })
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	code := program.Execute(t.Context(), cmd, args)
	without := func(text string) string { return strings.ReplaceAll(text, f.dir, "DIR") }
	return answer{code, without(out.String()), without(errs.String())}
}

func TestCheckPrintsASummaryOfGoodFiles(t *testing.T) {
	f := newCheckFixture(t, map[string]string{"a.yaml": apitest.Files})
	want := answer{Out: "1 file, 3 resources, 5 classes: OK\n"}
	wantAnswer(t, want, f.check(t, f.dir))
	wantAnswer(t, want, f.check(t, filepath.Join(f.dir, "a.yaml")))
	wantAnswer(t, want, f.check(t, "--config", f.dir))
	wantAnswer(t, answer{Out: "1 file, 3 resources, 5 classes: OK (not checked against this machine)\n"}, f.check(t, "--offline", f.dir))
}

func TestCheckPrintsALineForEveryProblem(t *testing.T) {
	f := newCheckFixture(t, map[string]string{
		"a.yaml": `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: none
  classes: [{name: gold, capacity: -1}]
  test: {names: [gold]}
`,
		"b.yaml": "kind: Wrong\n",
	})

	got := f.check(t, f.dir)
	lines := strings.Split(strings.TrimSpace(got.Out), "\n")
	if got.Code != 1 || len(lines) < 3 {
		t.Errorf("answer is %+v, want 1 and a line for every problem", got)
	}

	for _, want := range []string{"DIR/a.yaml:5: resources[0].defaultClass: ", "DIR/a.yaml:6: resources[0].classes[0].capacity: ", "DIR/b.yaml:1: kind: "} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("no line begins with %q in:\n%s", want, got.Out)
		}
	}

	if strings.Contains(got.Out, "OK") {
		t.Errorf("a summary follows problems:\n%s", got.Out)
	}
}

func TestCheckReportsWhatTheMachineRefusesUnlessOffline(t *testing.T) {
	f := newCheckFixture(t, map[string]string{"a.yaml": apitest.Files})
	f.Backends[apitest.RDT].Fail("check", errors.Join(errors.New("3 CLOSIDs are needed and 2 are free"), errors.New("mask 5 has a hole")))
	wantAnswer(t, answer{
		Code: 1,
		Out: "DIR/a.yaml:4: k8s.io/rdt: 3 CLOSIDs are needed and 2 are free\n" +
			"DIR/a.yaml:4: k8s.io/rdt: mask 5 has a hole\n",
		Errors: "Error: there are 2 problems\n",
	}, f.check(t, f.dir))

	if got := f.check(t, "--offline", f.dir); got.Code != 0 {
		t.Errorf("offline, the answer is %+v", got)
	}

	if classes, times := f.Backends[apitest.RDT].Live(); times != 0 {
		t.Errorf("checking applied %v", classes)
	}
}

func TestCheckWarnsOfResourcesThatTheMachineDoesNotHave(t *testing.T) {
	f := newCheckFixture(t, map[string]string{"a.yaml": apitest.Files})
	f.Backends[apitest.RDT].Lack(&classes.Unavailable{Reason: "NoCPUSupport", Message: "this CPU has no RDT; use another"})
	wantAnswer(t, answer{
		Out: "warning: k8s.io/rdt: unavailable on this machine (NoCPUSupport): this CPU has no RDT; use another\n" +
			"1 file, 3 resources, 5 classes: OK\n",
	}, f.check(t, f.dir))
}

func TestCheckWarnsOfPartlyEnforcedClasses(t *testing.T) {
	f := newCheckFixture(t, map[string]string{"a.yaml": apitest.Files})
	f.Backends[apitest.BlockIO].Preset(classes.BackendStatus{
		Degraded: map[string]string{"throttled": "no device matches /dev/vdz"},
		Conditions: []classes.Condition{
			{Type: "WeightsEffective", Reason: "NoScheduler", Message: "no disk acts on weights; set its scheduler to bfq"},
			{Type: "DevicesFound", Healthy: true, Reason: "Found", Message: "1 disk"},
			{Type: "Shared", Healthy: true, Limited: true, Reason: "WithinPods", Message: "only within a pod"},
		},
	})
	wantAnswer(t, answer{
		Out: "warning: k8s.io/blockio: class throttled is enforced only in part: no device matches /dev/vdz\n" +
			"warning: k8s.io/blockio: WeightsEffective: NoScheduler: no disk acts on weights; set its scheduler to bfq\n" +
			"warning: k8s.io/blockio: Shared: WithinPods: only within a pod\n" +
			"1 file, 3 resources, 5 classes: OK\n",
	}, f.check(t, f.dir))
}

func TestCheckReportsAMissingPath(t *testing.T) {
	f := newCheckFixture(t, nil)
	got := f.check(t, filepath.Join(f.dir, "none"))
	if got.Code != 1 || !strings.Contains(got.Out, "DIR/none") {
		t.Errorf("answer is %+v, want 1 and the path", got)
	}
}

func TestCheckExitsWithTwoForAWrongCommandLine(t *testing.T) {
	f := newCheckFixture(t, map[string]string{"a.yaml": apitest.Files})
	for _, args := range [][]string{
		{f.dir, "--runtime-endpoint", "tcp://127.0.0.1:1"},
		{f.dir, "--runtime-endpoint", "relative.sock"},
	} {
		if got := f.check(t, args...); got.Code != 2 {
			t.Errorf("%v answers %+v, want 2", args, got)
		}
	}
}

func TestCheckCountsAnAbsentRuntimeAsAProblem(t *testing.T) {
	f := newCheckFixture(t, map[string]string{"a.yaml": apitest.Files})
	got := f.check(t, f.dir, "--runtime-endpoint", "unix://"+f.dir+"/none.sock")
	if got.Code != 1 || !strings.Contains(got.Out, "runtime: problem: the runtime does not answer on unix://DIR/none.sock") {
		t.Errorf("answer is %+v", got)
	}
}

func TestCheckInAContainerLooksForSocketsWhereTheyAreMounted(t *testing.T) {
	f := newCheckFixture(t, map[string]string{"a.yaml": apitest.Files})
	got := f.check(t, f.dir, "--host-root", "/host", "--runtime-endpoint", "unix://"+f.dir+"/none.sock")
	if !strings.Contains(got.Out, "DIR/none.sock: connect: no such file or directory") || strings.Contains(got.Out, "/hostDIR") {
		t.Errorf("answer is %+v", got)
	}
}
