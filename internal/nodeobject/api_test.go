// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// object is the JSON of a NodeQOSResources object.
type object map[string]any

// api simulates an API server with one Node and at most one NodeQOSResources object. Its connections are in memory, so
// that it works in a synctest bubble. It implements what a publisher needs: applies, resource versions, and watches
// that start at a version.
type api struct {
	t       *testing.T
	applied *fieldManager

	mu       sync.Mutex // guards all below
	nodeUID  string     // empty if the Node does not exist
	version  int
	object   object
	events   []event
	changed  chan struct{} // closed at every event, and when watches end
	sent     int           // the newest version that watches get; 0 means no limit
	epoch    int           // counts how often all watches were ended
	requests []string      // method and path of all requests that were answered, watches included
	answer   func(r *http.Request) (code int, body string, retryAfter string)
	down     bool
	conns    map[net.Conn]bool
	accepted chan net.Conn
}

type event struct {
	version int
	kind    string
	object  object
}

// serve starts an API server that has the node with this UID.
func serve(t *testing.T, nodeUID string) *api {
	t.Helper()
	a := &api{t: t, applied: newFieldManager(t), nodeUID: nodeUID, version: 100, changed: make(chan struct{}), conns: map[net.Conn]bool{}, accepted: make(chan net.Conn)}
	server := &http.Server{Handler: http.HandlerFunc(a.handle)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(a)
	}()

	t.Cleanup(func() {
		a.endWatches()
		_ = server.Close()
		<-done
	})

	return a
}

// Accept, Close and Addr make api a net.Listener.
func (a *api) Accept() (net.Conn, error) {
	conn, ok := <-a.accepted
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (a *api) Close() error {
	a.setDown(true)
	close(a.accepted)
	return nil
}

func (a *api) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (a *api) dial(context.Context, string, string) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return nil, syscall.ECONNREFUSED
	}
	client, server := net.Pipe()
	a.conns[client], a.conns[server] = true, true
	a.accepted <- server
	return client, nil
}

// config returns a client configuration from kubeapi.
func (a *api) config() *rest.Config {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), "config")
	content := `{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: c, cluster: {server: "http://api.example"}}],
contexts: [{name: x, context: {cluster: c}}]}`
	must.Do(a.t, os.WriteFile(path, []byte(content), 0o600))

	config := must.Get(kubeapi.Config(path, "test"))(a.t)

	transport := &http.Transport{DialContext: a.dial}
	a.t.Cleanup(transport.CloseIdleConnections)
	config.Transport = transport
	return config
}

// setDown simulates an outage. If `down` is true, setDown closes all connections, and the server refuses new connections.
// If `down` is false, the server accepts connections again.
func (a *api) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
	if down {
		for conn := range a.conns {
			_ = conn.Close()
		}
		clear(a.conns)
	}
}

// endWatches ends every watch, as API servers do from time to time.
func (a *api) endWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epoch++
	a.wake()
}

// refuse makes the server call a function for each request. If the function returns the code 0, the server answers the
// request as usual, and otherwise with this code. If the function is nil, the server answers all requests as usual.
func (a *api) refuse(answer func(r *http.Request) (code int, body, retryAfter string)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// wake makes watches look for events. The caller holds mu.
func (a *api) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// takeRequests returns the requests since the last call.
func (a *api) takeRequests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.requests
	a.requests = nil
	return taken
}

// lag keeps the watches the given number of versions behind the present version.
func (a *api) lag(versions int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = a.version - versions
	a.wake()
}

// put changes the object as another client does. If the function returns nil, put deletes the object.
func (a *api) put(change func(object) object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(change(clone(a.object)))
}

func (a *api) setNode(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodeUID = uid
}

func (a *api) get() object {
	a.mu.Lock()
	defer a.mu.Unlock()
	return clone(a.object)
}

// store replaces the object if it differs. The caller holds mu.
func (a *api) store(next object) {
	if reflect.DeepEqual(a.object, next) {
		return
	}

	a.version++
	kind, changed := "MODIFIED", next
	switch {
	case a.object == nil:
		kind = "ADDED"
	case next == nil:
		kind, changed = "DELETED", a.object
	}

	changed["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(a.version)
	a.object = next
	a.events = append(a.events, event{a.version, kind, clone(changed)})
	a.wake()
}

func (a *api) handle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	a.mu.Lock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path+map[bool]string{true: " watch"}[r.URL.Query().Get("watch") != ""])
	answer := a.answer
	a.mu.Unlock()
	if answer != nil {
		if code, body, retryAfter := answer(r); code != 0 {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			if !strings.HasPrefix(body, "{") {
				w.Header().Set("Content-Type", "text/plain")
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
			return
		}
	}

	const objects = "/apis/qos.noderesource.dev/v1alpha1/nodeqosresources"
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes/n1":
		a.getNode(w)
	case r.Method == http.MethodGet && r.URL.Path == objects && r.URL.Query().Get("fieldSelector") == "metadata.name=n1":
		a.listOrWatch(w, r)
	case r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, objects+"/n1"):
		a.apply(w, r, strings.TrimPrefix(r.URL.Path, objects+"/n1"))
	default:
		a.t.Errorf("unexpected request %s %s", r.Method, r.URL)
	}
}

func (a *api) getNode(w http.ResponseWriter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodeUID == "" {
		notFound(w, `nodes "n1" not found`)
		return
	}
	reply(w, object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": "n1", "uid": a.nodeUID}})
}

func notFound(w http.ResponseWriter, message string) {
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, failure(http.StatusNotFound, "NotFound", message))
}

func failure(code int, reason, message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, message)
}

func (a *api) listOrWatch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		a.mu.Lock()
		defer a.mu.Unlock()
		items := []object{}
		if a.object != nil {
			items = append(items, a.object)
		}
		reply(w, object{"apiVersion": "qos.noderesource.dev/v1alpha1", "kind": "NodeQOSResourcesList",
			"metadata": object{"resourceVersion": strconv.Itoa(a.version)}, "items": items})
		return
	}

	seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	a.mu.Lock()
	epoch := a.epoch
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		seen = a.version
		a.sendInitialEvents(w)
	}

	a.mu.Unlock()
	for {
		a.mu.Lock()
		events, changed, ended, sent := a.events, a.changed, a.epoch != epoch, a.sent
		a.mu.Unlock()
		if ended {
			return
		}
		for _, e := range events {
			if e.version > seen && (sent == 0 || e.version <= sent) {
				seen = e.version
				reply(w, object{"type": e.kind, "object": e.object})
			}
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// sendInitialEvents streams the object that a list request would return, and then a bookmark. The caller holds mu.
func (a *api) sendInitialEvents(w http.ResponseWriter) {
	if a.object != nil {
		reply(w, object{"type": "ADDED", "object": a.object})
	}
	reply(w, object{"type": "BOOKMARK", "object": object{
		"apiVersion": "qos.noderesource.dev/v1alpha1", "kind": "NodeQOSResources", "metadata": object{
			"resourceVersion": strconv.Itoa(a.version), "annotations": object{"k8s.io/initial-events-end": "true"},
		},
	}})
}

// apply replaces the metadata or the status by those in the request. It keeps conditions of type "Foreign", which
// simulate fields of other field managers.
func (a *api) apply(w http.ResponseWriter, r *http.Request, subresource string) {
	var body object
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		a.t.Error(err)
	}

	if q := r.URL.Query(); r.Header.Get("Content-Type") != "application/apply-patch+yaml" || q.Get("fieldManager") != "qos-kubelet-shim" || q.Get("force") != "true" {
		a.t.Errorf("the request is not a forced apply: %s %s", r.URL, r.Header.Get("Content-Type"))
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	next := clone(a.object)
	switch {
	case subresource == "/status" && next == nil:
		notFound(w, `nodeqosresources.qos.noderesource.dev "n1" not found`)
		return
	case subresource == "/status":
		if reason := a.applied.refuse(body); reason != "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, failure(http.StatusUnprocessableEntity, "Invalid", reason))
			return
		}
		next["status"] = merge(next["status"], body["status"])
	case next == nil:
		delete(body, "status")
		next = body
	default:
		next["metadata"].(map[string]any)["ownerReferences"] = body["metadata"].(map[string]any)["ownerReferences"]
	}

	a.store(next)
	reply(w, a.object)
}

func merge(before, applied any) any {
	b, _ := before.(map[string]any)
	a, _ := applied.(map[string]any)
	conditions, _ := b["conditions"].([]any)
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Foreign" {
			all, _ := a["conditions"].([]any)
			a["conditions"] = append(all, c)
		}
	}
	return a
}

func reply(w io.Writer, o object) { _, _ = w.Write(encode(o)) }

func encode(o object) []byte {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err) // the value was decoded from JSON
	}
	return data
}

func clone(o object) object {
	if o == nil {
		return nil
	}
	var copied object
	if err := json.Unmarshal(encode(o), &copied); err != nil {
		panic(err)
	}
	return copied
}
