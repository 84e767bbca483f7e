// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

func run(t *testing.T, args ...string) (code int, out, errors string) {
	t.Helper()
	var stdout, stderr strings.Builder
	root := newRootCommand()
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code = program.Execute(t.Context(), root, args)
	return code, stdout.String(), stderr.String()
}

func TestAWrongCommandLineIsOneLineAndExitCode2(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--publish=nodes"}, `--publish "nodes" is not one of device-plugin, node-object, pod-conditions, events, evictions`},
		{[]string{"--grace=soon"}, `invalid argument "soon" for "--grace"`},
		{[]string{"--log-level=loud"}, `--log-level "loud": use debug, info, warn or error`},
		{[]string{"start"}, `unknown command "start"`},
		{[]string{"--none-such"}, "unknown flag: --none-such"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			code, _, errors := run(t, test.args...)
			if code != program.ExitUsage || strings.Count(errors, "\n") != 1 || !strings.Contains(errors, test.want) ||
				!strings.Contains(errors, "qos-kubelet-shim --help") {
				t.Errorf("exit code %d, %q; want 2 and one line with %q", code, errors, test.want)
			}
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	if code, out, _ := run(t, "version"); code != 0 || !strings.HasPrefix(out, "qos-kubelet-shim ") {
		t.Errorf("version: exit code %d, %q", code, out)
	}
	if code, out, _ := run(t, "--help"); code != 0 || !strings.Contains(out, "--follow-annotations") {
		t.Errorf("help: exit code %d, %q", code, out)
	}
}
