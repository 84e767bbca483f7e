// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestCompletionOfTheLastArgument(t *testing.T) {
	for _, c := range []struct {
		name, args string // with "_" for an empty argument
		// want has the completions, followed by cobra's directive: 4 completes no files, and 6 also adds no space.
		want string
	}{
		{"of commands", "to", "top :4"},
		{"of nodes", "nodes _", "node-1 node-2 :4"},
		{"of one node only", "nodes node-1 _", ":4"},
		{"of pods", "pods _", "late typo web :4"},
		{"of pods of another namespace", "pods -n shop _", "cart :4"},
		{"of containers", "set web -c _", "main side :4"},
		{"of classes to which the container can change", "set web -c main _", "rdt=gold rdt=silver rdt=bronze :6"},
		{"of classes by the full name", "set web -c main k8s", "k8s.io/rdt=gold k8s.io/rdt=silver k8s.io/rdt=bronze :6"},
		{"of a class by its first letter", "set web -c main rdt=s", "rdt=silver :6"},
		{"not of a resource that has a pair already", "set web -c main rdt=gold,", ":6"},
		{"not of a resource that an earlier word names", "set web -c main rdt- _", ":6"},
		{"of formats", "pods -o _", "wide json yaml kyaml go-template go-template-file template templatefile jsonpath jsonpath-as-json jsonpath-file :4"},
		{"of dry runs", "set --dry-run=", "none client server :4"},
		{"of nodes whose usage can be shown", "top usage _", "node-1 node-2 :4"},
		{"of nothing after the only argument", "top usage node-1 _", ":4"},
		{"of StatefulSets", "resize _", "db :4"},
		{"of one StatefulSet only", "resize db _", ":4"},
		{"of claim templates", "resize db --template _", "data log :4"},
		{"not of claim templates without a StatefulSet", "resize --template _", ":4"},
		{"of VolumeAttributesClasses", "resize db --volume-attributes-class _", "gold :4"},
		{"of dry runs of resize", "resize --dry-run=", "none client server :4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newResizeRig(t, "data", "log")
			r.load(t, "nodes.yaml", "pods.yaml")
			args := append([]string{"__completeNoDesc"}, strings.Fields(c.args)...)
			args[len(args)-1] = strings.TrimPrefix(args[len(args)-1], "_")
			got := r.run(t, args...)
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
			t.Errorf("%v completes %q, want only a directive", args, got.Out)
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

func TestVersionAndHelpHaveTheNameOfThePlugin(t *testing.T) {
	if got := newRig(t).run(t, "version"); !strings.HasPrefix(got.Out, "kubectl-qos v0.1.0 (") {
		t.Errorf("version is %+v", got)
	}
	if got := newRig(t).run(t); got.Code != 0 || !strings.Contains(got.Out, "\n  kubectl qos [command]\n") {
		t.Errorf("help is %+v", got)
	}
}

func TestAnUnknownCommandIsAUsageError(t *testing.T) {
	if got := newRig(t).run(t, "nods"); got.Code != 2 || !strings.Contains(got.Errors, `unknown command "nods"`) {
		t.Errorf("answer is %+v", got)
	}
}
