// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

func failing(err error) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
}

func TestErrorsOfTheClusterAreOneLineWithTheRemedy(t *testing.T) {
	ours := nodeqosv1alpha1.Resource(nodeqosv1alpha1.Plural)
	noCRD := apierrors.NewGenericServerResponse(http.StatusNotFound, "list", ours, "", "404 page not found", 0, true)
	forbidden := apierrors.NewForbidden(ours, "", errors.New(`User "eve" cannot list resource "nodeqosresources" in API group "qos.noderesource.dev" at the cluster scope`))
	unreachable := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	for _, c := range []struct {
		name string
		args []string
		err  error
		want string
	}{
		{"the CRD is missing", []string{"nodes"}, noCRD, "this cluster has no kind NodeQOSResources; install the plugin as docs/kubernetes.md describes; if only the CRD is missing, run \"helm upgrade\" with crds.install=true, or kubectl apply -f deploy/kubernetes/crd.yaml"},
		{"the CRD is missing, and a node is named", []string{"nodes", "node-1"}, noCRD, "this cluster has no kind NodeQOSResources; install the plugin as docs/kubernetes.md describes; if only the CRD is missing, run \"helm upgrade\" with crds.install=true, or kubectl apply -f deploy/kubernetes/crd.yaml"},
		{"a permission is missing", []string{"top"}, forbidden, `a permission is missing: nodeqosresources.qos.noderesource.dev is forbidden: User "eve" cannot list resource "nodeqosresources" in API group "qos.noderesource.dev" at the cluster scope; ask an administrator to name you in the value viewers of the Helm chart, or to grant you the ClusterRole of docs/kubectl.md`},
		{"credentials are not accepted", []string{"nodes"}, apierrors.NewUnauthorized("Unauthorized"), "the API server does not accept the credentials: Unauthorized; log in again, or choose others with --kubeconfig or --context"},
		{"the API server does not answer", []string{"nodes"}, unreachable, "the API server at https://10.0.0.1:6443 does not answer: connection refused; check the cluster with: kubectl config current-context"},
		{"the API server is overloaded", []string{"top"}, apierrors.NewTooManyRequests("too many requests", 1), "the API server is overloaded: too many requests; try again later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, "nodes.yaml", "pods.yaml")
			r.objects.PrependReactor("*", nodeqosv1alpha1.Plural, failing(c.err))
			wantAnswer(t, answer{Code: 1, Errors: "Error: " + c.want + "\n"}, r.run(t, c.args...))
		})
	}
}

func TestWithoutTheRightToReadNodesThePodConditionsAreShown(t *testing.T) {
	r := newRig(t, "nodes.yaml", "pods.yaml")
	r.objects.PrependReactor("*", nodeqosv1alpha1.Plural, failing(apierrors.NewForbidden(nodeqosv1alpha1.Resource("x"), "", errors.New("no"))))
	wantAnswer(t, answer{Out: `
POD    CONTAINER   RESOURCE     REQUESTED   EFFECTIVE   SOURCE      WHY
cart   main        k8s.io/rdt   gold        gold        container
cart   sidecar     k8s.io/rdt   bronze      silver      update      Changed: the class was changed at run time; a new container gets the class that the pod requests
`, Errors: `Note: only what is in the Pod objects can be shown: a permission is missing: x.qos.noderesource.dev is forbidden: no; list your permissions with: kubectl auth can-i --list
`}, r.run(t, "pods", "-n", "shop", "cart"))
}

func TestWithoutTheCRDThePodsAreShown(t *testing.T) {
	r := newRig(t, "pods.yaml")
	r.objects.PrependReactor("*", nodeqosv1alpha1.Plural, failing(apierrors.NewGenericServerResponse(
		http.StatusNotFound, "list", nodeqosv1alpha1.Resource(nodeqosv1alpha1.Plural), "", "404 page not found", 0, true)))
	got := r.run(t, "pods", "-n", "shop", "cart")
	if got.Code != 0 || !strings.Contains(bare(got.Out), "cart | sidecar | k8s.io/rdt | bronze | silver | update") ||
		!strings.HasPrefix(got.Errors, "Note: only what is in the Pod objects can be shown: this cluster has no kind NodeQOSResources; install") {
		t.Errorf("answer is %+v", got)
	}
}

func TestAConfigurationThatNamesNoClusterIsAnErrorOfOneLine(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "config", "apiVersion: v1\nkind: Config\ncurrent-context: gone\n")
	for _, args := range [][]string{
		{"nodes", "--kubeconfig", filepath.Join(dir, "none")},
		{"nodes", "--kubeconfig", file},
		{"nodes", "--kubeconfig", file, "--context", "other"},
	} {
		var out, errs bytes.Buffer
		root := NewRootCommand("v0.1.0", genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs})
		code := program.Execute(t.Context(), root, args)
		if text := errs.String(); code != 1 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "--kubeconfig, --context and KUBECONFIG") {
			t.Errorf("%v answers %d, %q", args, code, text)
		}
	}
}
