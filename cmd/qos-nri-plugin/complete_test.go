// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion completes the last of the words after a command.
func TestCompletion(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		name, command string
		words         []string
		want          string
	}{
		{"of pods", "assignments", []string{""}, "default/web kube-system/agent"},
		{"of pods by a prefix", "assignments", []string{"kube"}, "kube-system/agent"},
		{"of UIDs by a prefix", "update", []string{"uid-w"}, "uid-web"},
		{"of nothing after the pod", "assignments", []string{"default/web", ""}, ""},
		{"of containers, and of classes of the pod itself", "update", []string{"kube-system/agent", ""}, "main side vendor.example/network=fast"},
		{"of classes", "update", []string{"default/web", "main", ""}, "rdt=gold rdt=bronze blockio=high-prio blockio=throttled"},
		{"of a class by a prefix", "update", []string{"default/web", "main", "rdt=g"}, "rdt=gold"},
		{"of the full name of a resource", "update", []string{"default/web", "main", "k8s.io/r"}, "k8s.io/rdt=gold k8s.io/rdt=bronze"},
		{"of further pairs without the resource of the first", "update", []string{"default/web", "main", "rdt=gold,"}, "rdt=gold,blockio=high-prio rdt=gold,blockio=throttled"},
		{"of nothing after the classes", "update", []string{"default/web", "main", "rdt=gold", ""}, ""},
		{"of formats", "status", []string{"-o", ""}, "table json yaml"},
		{"of columns", "top", []string{"--sort-by", ""}, "cache memory local observed watts activity read written reads writes waiting stalled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t.Context(), append([]string{"__complete", test.command, "--api-socket", f.socket}, test.words...)...)
			words, _, _ := strings.Cut(got.Out, ":")
			if strings.Join(strings.Fields(words), " ") != test.want {
				t.Errorf("completions are %q, want %q", words, test.want)
			}
		})
	}
}

func TestCompletionIsSilentWithoutThePlugin(t *testing.T) {
	got := run(t.Context(), "__complete", "assignments", "--api-socket", filepath.Join(t.TempDir(), "none.sock"), "")
	if got.Code != 0 || got.Out != ":4\n" { // cobra's directive to complete no files
		t.Errorf("answer is %+v", got)
	}
}

func TestCompletionScriptsAreMadeForEveryShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := run(t.Context(), "completion", shell); got.Code != 0 || !strings.Contains(got.Out, "qos-nri-plugin") {
			t.Errorf("the completion script for %s: exit code %d, %d bytes of output", shell, got.Code, len(got.Out))
		}
	}
}
