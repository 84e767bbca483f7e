// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/test/apiserver"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// recorder is an API server that records its requests. Every response is the same object.
func recorder(t *testing.T, requests *[]string) *rest.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*requests = append(*requests, strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("Content-Type"), r.Header.Get("Accept"), string(body)}, "\n"))
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = io.WriteString(w, `{"metadata": {"name": "from-the-server"}}`)
	}))
	t.Cleanup(server.Close)
	return configOf(t, server.URL)
}

// TestCoreMakesTheRequestsOfTheClientset compares each method of Core with the method of client-go's clientset.
func TestCoreMakesTheRequestsOfTheClientset(t *testing.T) {
	force, seconds := true, int64(300)
	list := metav1.ListOptions{FieldSelector: "spec.nodeName=n1", ResourceVersion: "7", TimeoutSeconds: &seconds}
	for name, request := range map[string]func(context.Context, kubeapi.Core) (any, error){
		"list all pods": func(ctx context.Context, c kubeapi.Core) (any, error) { return c.Pods("").List(ctx, list) },
		"list pods":     func(ctx context.Context, c kubeapi.Core) (any, error) { return c.Pods("a").List(ctx, list) },
		"watch pods": func(ctx context.Context, c kubeapi.Core) (any, error) {
			stream, err := c.Pods("").Watch(ctx, list)
			if err == nil {
				stream.Stop()
			}
			return nil, err
		},
		"apply a pod's status": func(ctx context.Context, c kubeapi.Core) (any, error) {
			options := metav1.PatchOptions{FieldManager: "m", Force: &force}
			return c.Pods("a").Patch(ctx, "web", types.ApplyPatchType, []byte(`{"x": 1}`), options, "status")
		},
		"evict a pod": func(ctx context.Context, c kubeapi.Core) (any, error) {
			uid := types.UID("u")
			return nil, c.Pods("a").EvictV1(ctx, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: "a", Name: "web"},
				DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
			})
		},
		"create an event": func(ctx context.Context, c kubeapi.Core) (any, error) {
			return c.Events("a").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Reason: "R"}, metav1.CreateOptions{})
		},
		"patch an event": func(ctx context.Context, c kubeapi.Core) (any, error) {
			return c.Events("a").Patch(ctx, "e", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		},
		"get a node": func(ctx context.Context, c kubeapi.Core) (any, error) {
			return c.Nodes().Get(ctx, "n1", metav1.GetOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			config := recorder(t, &requests)
			core := must.Get(kubeapi.NewCore(config))(t)
			clientset := must.Get(kubernetes.NewForConfig(config))(t)
			got := must.Get(request(t.Context(), core))(t)

			if _, err := request(t.Context(), apiserver.Core(clientset)); err != nil {
				t.Fatal(err)
			}

			if len(requests) != 2 || requests[0] != requests[1] {
				t.Errorf("the request is\n%q\nwant that of the clientset:\n%q", requests[0], requests[1:])
			}

			if object, ok := got.(metav1.Object); ok && object.GetName() != "from-the-server" {
				t.Errorf("the object is %+v, want that of the response", got)
			}
		})
	}
}
