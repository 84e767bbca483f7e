// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"
)

func TestArgumentsCanHaveATypeBeforeTheName(t *testing.T) {
	for _, c := range []struct {
		name string
		args string
		as   string // arguments that give the same answer
	}{
		{"a pod that is shown", "pods pod/web", "pods web"},
		{"a pod in the plural", "pods pods/web", "pods web"},
		{"a pod by the short name", "pods po/web", "pods web"},
		{"a type in capitals", "pods Pod/web", "pods web"},
		{"a pod that is changed", "set pod/web -c side rdt=silver --dry-run", "set web -c side rdt=silver --dry-run"},
		{"a node", "nodes node/node-1", "nodes node-1"},
		{"a node in the plural", "nodes nodes/node-1", "nodes node-1"},
		{"a node by the short name", "nodes no/node-1", "nodes node-1"},
		{"a pod whose containers are completed", "__completeNoDesc set pod/web -c ma", "__completeNoDesc set web -c ma"},
		{"a pod whose classes are completed", "__completeNoDesc set pod/web rdt=", "__completeNoDesc set web rdt="},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, "nodes.yaml", "pods.yaml")
			want := r.run(t, strings.Fields(c.as)...)
			if want.Code != 0 || len(want.Out) < 10 {
				t.Fatalf("%s answers %+v", c.as, want)
			}
			wantAnswer(t, want, r.run(t, strings.Fields(c.args)...))
		})
	}
}

func TestArgumentsWithAnotherTypeAreRefused(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"a Deployment for a pod", "pods deployment/web", `"deployment/web" is not a pod; pass a pod as NAME or pod/NAME; see "kubectl qos pods --help"`},
		{"a Deployment to change", "set deploy/web rdt=gold", `"deploy/web" is not a pod; pass a pod as NAME or pod/NAME; see "kubectl qos set --help"`},
		{"a pod for a node", "nodes pod/web", `"pod/web" is not a node; pass a node as NAME or node/NAME; see "kubectl qos nodes --help"`},
		{"a type without a name", "pods pod/", `"pod/" does not name a pod; pass one as NAME or pod/NAME; see "kubectl qos pods --help"`},
		{"too many words", "nodes node/a/b", `"node/a/b" does not name a node; pass one as NAME or node/NAME; see "kubectl qos nodes --help"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := answer{Code: 2, Errors: "Error: usage: " + c.want + "\n"}
			wantAnswer(t, want, newRig(t, "nodes.yaml", "pods.yaml").run(t, strings.Fields(c.args)...))
		})
	}
}
