// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/internal/tracing"
)

// collector is a server that keeps the spans that it gets. The tests in test/otlp check the format of spans.
type collector struct {
	mu    sync.Mutex // guards the field below
	spans []string   // name, the pod's name, the container's name, and the error
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct {
					Name       string
					Attributes []struct {
						Key   string
						Value struct{ StringValue string }
					}
					Status struct{ Message string }
				}
			}
		}
	}

	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		attributes := map[string]string{}
		for _, a := range s.Attributes {
			attributes[a.Key] = a.Value.StringValue
		}
		c.spans = append(c.spans, strings.Join([]string{s.Name, attributes["k8s.pod.name"], attributes["k8s.container.name"], s.Status.Message}, "|"))
	}
}

// TestHooksAndClassFilesAreTraced also requests a change for a pod that does not exist, so the span of this change has no name of a pod.
func TestHooksAndClassFilesAreTraced(t *testing.T) {
	received := &collector{}
	server := httptest.NewServer(received)
	defer server.Close()
	r := newRig(t, files)
	var err error
	r.options.Tracer, err = tracing.New(server.URL, nil, slog.New(slog.DiscardHandler))
	must(t, err)
	r.begin(t)
	r.synchronized(t, 1)
	must(t, r.run(t, "test.example/cache=gold"))

	if err := r.run(t, "test.example/cache=none-such"); err == nil {
		t.Fatal("a container got a class that does not exist")
	}

	api, err := nodeclient.Connect(r.options.APISocket)
	must(t, err)
	defer api.Close()
	_, err = qosv1alpha1.NewNodeQOSClient(api).UpdateContainerQOSResources(t.Context(), &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: "no-such-pod", Container: "main", QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: "test.example/cache", Class: "gold"}},
	})
	if err == nil {
		t.Fatal("the class of a pod that does not exist was changed")
	}

	must(t, r.terminate(t))

	received.mu.Lock()
	defer received.mu.Unlock()
	all := strings.Join(received.spans, "\n")
	// A span is: name|pod|container|error. If it ends with "|\n", it has no error.
	for _, want := range []string{
		"ApplyClassFiles|||\n", "Synchronize|||\n", "CreateContainer|p|main|\n", "StartContainer|p|main|\n",
		"CreateContainer|p|main|pod default/p container main: class \"none-such\"", "UpdateClasses||main|",
	} {
		if !strings.Contains(all+"\n", want) {
			t.Errorf("the collector did not get the span %q; it got\n%s", want, all)
		}
	}
}
