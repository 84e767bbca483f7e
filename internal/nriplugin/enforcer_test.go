// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/test/enforcer"
)

// startEnforcer starts a vendor's program beside the plugin, and returns its directory.
func (r *machineRig) startEnforcer(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "classes")
	must(t, os.Mkdir(dir, 0o700))
	n := r.Synchronizations()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	vendor := &enforcer.Plugin{Node: r.world.API, Dir: dir}
	go func() { ended <- vendor.Run(ctx, r.Socket()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	r.wait(t, n+1)
	return dir
}

// limited returns the reason why the class of vendor.example/xyz-qos of a container is not fully in force, as the node API reports it. It
// returns "" if there is no such reason.
func (r *machineRig) limited(t *testing.T, id string) string {
	t.Helper()
	return r.assignment(t, id, xyz).GetLimited()
}

func TestAVendorsProgramEnforcesClassesAndReportsThoseThatItCannot(t *testing.T) {
	r := newMachineRigWith(t, externalFiles)
	before := r.mustRun(t, r.pod(t, "before", ""))
	dir := r.startEnforcer(t)
	high := r.mustRun(t, r.pod(t, "a", xyz+"=high"))
	for id, want := range map[string]string{before: "low", high: "high"} {
		if got, err := os.ReadFile(filepath.Join(dir, id)); string(got) != want || err != nil {
			t.Errorf("the enforcer set %q, want %q: %v", got, want, err)
		}
		if got := r.limited(t, id); got != "" {
			t.Errorf("an enforced class is reported as %q", got)
		}
	}

	must(t, os.RemoveAll(dir)) // the enforcer cannot write any more
	failed := r.mustRun(t, r.pod(t, "b", ""))
	r.node.Reconcile(t.Context())
	if got := r.limited(t, failed); !strings.HasPrefix(got, "not enforced: open ") || !strings.HasSuffix(got, ": no such file or directory") {
		t.Errorf("a class that is not enforced is reported as %q", got)
	}
	if got := r.limited(t, high); got != "" {
		t.Errorf("the report on one container is shown at another one: %q", got)
	}

	r.change(t, failed, xyz, "")
	r.change(t, failed, xyz, "low")
	if got := r.limited(t, failed); got != "" {
		t.Errorf("after a change of the class, the former report is still shown: %q", got)
	}
}

func TestReportsThatTheNodeAPIRefuses(t *testing.T) {
	_, enforcedHere, _ := strings.Cut(machineFiles, "resources:\n")
	r := newMachineRigWith(t, externalFiles+enforcedHere)
	uid := r.subject(t, r.mustRun(t, r.pod(t, "a", ""))).PodUID
	for _, c := range []struct {
		name   string
		change func(*qosv1alpha1.ReportEnforcementRequest)
		code   codes.Code
		want   string
	}{
		{"an unknown resource", func(q *qosv1alpha1.ReportEnforcementRequest) { q.Name = "vendor.example/x" }, codes.InvalidArgument, `"vendor.example/x"; this node has`},
		{"a resource that the plugin enforces", func(q *qosv1alpha1.ReportEnforcementRequest) { q.Name = "rdt" }, codes.FailedPrecondition, "k8s.io/rdt: the plugin itself enforces"},
		{"an unknown container", func(q *qosv1alpha1.ReportEnforcementRequest) { q.Container = "x" }, codes.NotFound, "not found on this node"},
		{"another class", func(q *qosv1alpha1.ReportEnforcementRequest) { q.Class = "high" }, codes.FailedPrecondition, `has another class now: "low" of vendor.example/xyz-qos`},
		{"nothing wrong", func(*qosv1alpha1.ReportEnforcementRequest) {}, codes.OK, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &qosv1alpha1.ReportEnforcementRequest{PodUid: uid, Container: "main", Name: xyz, Class: "low", Problem: "no"}
			c.change(q)
			_, err := r.world.API.ReportEnforcement(t.Context(), q)
			if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s: %s", err, c.code, c.want)
			}
		})
	}
}

func TestOnlyTheEnforcerOfAResourceAndRootReportOnIt(t *testing.T) {
	files := strings.Replace(externalFiles, "{name: low}]\n  external: {}", "{name: low}]\n  external: {enforcerUser: 4242}", 1)
	r := newMachineRigWith(t, files)
	pod := r.pod(t, "a", netQoS+"=slow")
	subject := r.subject(t, r.mustRun(t, pod))
	for _, c := range []struct {
		name, resource, class string
		user                  uint32
		privileged            bool
		want                  error
	}{
		{"the enforcer", xyz, "low", 4242, false, nil},
		{"another user", xyz, "low", 4243, false, state.ErrNotEnforcer},
		{"root", xyz, "low", 0, true, nil},
		{"the enforcer of another resource", netQoS, "slow", 4242, false, state.ErrNotEnforcer},
		{"root on a resource of the pod", netQoS, "slow", 0, true, nil},
	} {
		owner := subject
		if c.resource == netQoS {
			owner.Container = ""
		}
		err := r.node.ReportEnforcement(owner, state.EnforcementReport{Resource: c.resource, Class: c.class, Problem: "not now", User: c.user, Privileged: c.privileged})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// TestAReportedProblemIsShownWithoutSeparators: commas, semicolons and brackets separate the parts of a message, so the first two are
// left out, and brackets become parentheses.
func TestAReportedProblemIsShownWithoutSeparators(t *testing.T) {
	r := newMachineRigWith(t, externalFiles)
	id := r.mustRun(t, r.pod(t, "a", ""))
	must(t, r.node.ReportEnforcement(r.subject(t, id), state.EnforcementReport{Resource: xyz, Class: "low", Problem: "a, b; [c]", Privileged: true}))
	if got := r.limited(t, id); got != "not enforced: a b (c)" {
		t.Errorf("the report is shown as %q", got)
	}
}

func TestReportsEndWithTheirResource(t *testing.T) {
	const files = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: vendor.example/xyz-qos
  defaultClass: low
  classes: [{name: low}]
  external: {}
`
	enforcedHere := strings.Replace(files, "external: {}", "linux: {classes: {low: {pids: {max: 1000}}}}", 1)
	for name, next := range map[string][]string{
		"the plugin itself enforces its classes":   {enforcedHere},
		"the resource was removed and added again": {strings.Replace(files, xyz, netQoS, 1), files},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMachineRigWith(t, files)
			id := r.mustRun(t, r.pod(t, "a", xyz+"=low"))
			report := state.EnforcementReport{Resource: xyz, Class: "low", Problem: "the card is not ready", Privileged: true}
			must(t, r.node.ReportEnforcement(r.subject(t, id), report))
			r.mustConfigure(t, files)
			if got := r.limited(t, id); got != "not enforced: the card is not ready" {
				t.Errorf("after the same files were loaded again, the report is shown as %q", got)
			}

			for _, text := range next {
				r.mustConfigure(t, text)
			}
			r.node.Repair(t.Context())
			if got := r.limited(t, id); got != "" {
				t.Errorf("the former report is still shown: %q", got)
			}
		})
	}
}
