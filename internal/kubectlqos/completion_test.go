// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// TestCompletion completes the last argument of a command.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		// want has the completions, followed by cobra's directive: 4 completes no files, and 6 also adds no space.
		want string
	}{
		{"of commands", []string{"to"}, "top :4"},
		{"of nodes", []string{"nodes", ""}, "node-1 node-2 :4"},
		{"of one node only", []string{"nodes", "node-1", ""}, ":4"},
		{"of pods", []string{"pods", ""}, "late typo web :4"},
		{"of pods of another namespace", []string{"pods", "-n", "shop", ""}, "cart :4"},
		{"of containers", []string{"set", "web", "-c", ""}, "main side :4"},
		{"of classes to which the container can change", []string{"set", "web", "-c", "main", ""}, "rdt=gold rdt=silver rdt=bronze :6"},
		{"of classes by the full name", []string{"set", "web", "-c", "main", "k8s"}, "k8s.io/rdt=gold k8s.io/rdt=silver k8s.io/rdt=bronze :6"},
		{"of a class by its first letter", []string{"set", "web", "-c", "main", "rdt=s"}, "rdt=silver :6"},
		{"not of a resource that has a pair already", []string{"set", "web", "-c", "main", "rdt=gold,"}, ":6"},
		{"not of a resource that an earlier word names", []string{"set", "web", "-c", "main", "rdt-", ""}, ":6"},
		{"of formats", []string{"pods", "-o", ""}, "wide json yaml kyaml go-template go-template-file template templatefile jsonpath jsonpath-as-json jsonpath-file :4"},
		{"of dry runs", []string{"set", "--dry-run="}, "none client server :4"},
		{"of nodes whose usage can be shown", []string{"top", "usage", ""}, "node-1 node-2 :4"},
		{"of nothing after the only argument", []string{"top", "usage", "node-1", ""}, ":4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newRig(t, "nodes.yaml", "pods.yaml").run(t, append([]string{"__completeNoDesc"}, c.args...)...)
			if words := strings.Join(strings.Fields(got.Out), " "); words != c.want || got.Code != 0 {
				t.Errorf("completes %q, want %q (%+v)", words, c.want, got)
			}
		})
	}
}

func TestCompletionOfResize(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string // as in TestCompletion
	}{
		{"of StatefulSets", []string{""}, "db :4"},
		{"of one StatefulSet only", []string{"db", ""}, ":4"},
		{"of templates", []string{"db", "--template", ""}, "data log :4"},
		{"not of templates without a StatefulSet", []string{"--template", ""}, ":4"},
		{"of classes", []string{"db", "--volume-attributes-class", ""}, "gold :4"},
		{"of dry runs", []string{"--dry-run="}, "none client server :4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newResizeRig(t, "data", "log").run(t, append([]string{"__completeNoDesc", "resize"}, c.args...)...)
			if words := strings.Join(strings.Fields(got.Out), " "); words != c.want || got.Code != 0 {
				t.Errorf("completes %q, want %q (%+v)", words, c.want, got)
			}
		})
	}
}

func TestCompletionIsEmptyWithoutACluster(t *testing.T) {
	r := newRig(t)
	fail := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") }
	r.objects.PrependReactor("*", "*", fail)
	r.core.PrependReactor("*", "*", fail)
	for _, args := range [][]string{{"nodes", ""}, {"pods", ""}, {"set", "web", ""}, {"set", "web", "-c", ""}, {"resize", ""}, {"resize", "db", "--template", ""}} {
		if got := r.run(t, append([]string{"__completeNoDesc"}, args...)...); got.Out != ":4\n" && got.Out != ":6\n" {
			t.Errorf("%v completes %q", args, got.Out)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "__start_kubectl-qos", "zsh": "#compdef kubectl-qos", "fish": "complete -c kubectl-qos", "powershell": "Register-ArgumentCompleter",
		"kubectl": "exec kubectl qos __complete \"$@\"\n",
	} {
		if got := newRig(t).run(t, "completion", shell); got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("the script for %s has no %q (exit code %d)", shell, want, got.Code)
		}
	}
	if got := newRig(t).run(t, "completion", "csh"); got.Code != 2 || !strings.Contains(got.Errors, "name one of bash, zsh, fish, powershell, kubectl") {
		t.Errorf("answer is %+v", got)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}

	const header = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n"
	good := write("good.yaml", header+"- name: k8s.io/blockio\n  blockio: {Classes: {slow: [{Weight: \"100\"}]}}\n")
	bad := write("bad.yaml", header+"- name: k8s.io/rdt\n  rdt: {partitions: {}}\n  colour: red\n")
	for _, c := range []struct {
		name string
		args []string
		want answer
	}{
		{"prints a summary of a good file", []string{good}, answer{Out: "1 file, 1 resource, 1 class: OK (not checked against this machine)\n"}},
		{"prints the problems, and checks the next file", []string{bad, good}, answer{Code: 1, Errors: "Error: there is 1 problem\n"}},
		{"needs a file", nil, answer{Code: 2, Errors: "Error: usage: no FILE is named; see \"kubectl qos check --help\"\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newRig(t).run(t, append([]string{"check"}, c.args...)...)
			got.Out = strings.ReplaceAll(got.Out, dir, "DIR")
			if c.want.Code == 1 {
				if !strings.HasPrefix(got.Out, "DIR/bad.yaml:6: ") || !strings.HasSuffix(got.Out, "OK (not checked against this machine)\n") {
					t.Errorf("printed %q", got.Out)
				}
				got.Out = ""
			}
			wantAnswer(t, c.want, got)
		})
	}
}

func TestVersionAndHelpHaveTheNameOfThePlugin(t *testing.T) {
	if got := newRig(t).run(t, "version"); !strings.HasPrefix(got.Out, "kubectl-qos v0.1.0 (") {
		t.Errorf("version is %+v", got)
	}
	if got := newRig(t).run(t); got.Code != 0 || !strings.Contains(got.Out, "\n  kubectl qos [command]\n") {
		t.Errorf("help is %+v", got)
	}
	if got := newRig(t).run(t, "nods"); got.Code != 2 || !strings.Contains(got.Errors, `unknown command "nods"`) {
		t.Errorf("answer is %+v", got)
	}
}
