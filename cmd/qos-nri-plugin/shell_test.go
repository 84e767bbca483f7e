// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// fixture is the node API of a plugin with two pods: default/web has the class gold, and kube-system/agent requests no
// class.
type fixture struct {
	*apitest.Node
	socket string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Node: apitest.NewNode()}
	err := errors.Join(
		f.Load(t.Context(), apitest.Files),
		f.RunPod(t.Context(), "default", "web", "rdt=gold,vendor.example/network=fast", "main"),
		f.RunPod(t.Context(), "kube-system", "agent", "", "main", "side"),
	)
	must(t, err)

	served, err := apitest.Serve(context.WithoutCancel(t.Context()), f, t.TempDir())
	must(t, err)

	t.Cleanup(func() {
		if err := served.Stop(); err != nil {
			t.Error(err)
		}
	})

	f.socket = served.Socket
	return f
}

// answer has the exit code and the output of a command.
type answer struct {
	Code        int
	Out, Errors string
}

func run(ctx context.Context, args ...string) answer {
	var out, errs strings.Builder
	root := newRootCommand()
	root.SetOut(&out)
	root.SetErr(&errs)
	code := program.Execute(ctx, root, args)
	return answer{code, out.String(), errs.String()}
}

// ask runs a command on the fixture's socket. In the answer, TIME replaces times, and SOCKET replaces the path of the
// socket in errors.
func (f *fixture) ask(t *testing.T, args ...string) answer {
	t.Helper()
	got := run(t.Context(), append(args, "--api-socket", f.socket)...)
	got.Out = regexp.MustCompile(`20\d\d-\d\d-\d\dT[0-9:.]+Z`).ReplaceAllString(got.Out, "TIME")
	got.Errors = strings.ReplaceAll(got.Errors, f.socket, "SOCKET")
	return got
}

func wantAnswer(t *testing.T, want, got answer) {
	t.Helper()
	want.Out = strings.TrimPrefix(want.Out, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer differs (-want +got):\n%s", diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
