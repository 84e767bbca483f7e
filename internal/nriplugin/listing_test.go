// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// environment returns environment variables with the given total size in KiB.
func environment(kib int) (env []string) {
	for i := range (kib + 63) / 64 {
		env = append(env, fmt.Sprintf("E%d=%s", i, strings.Repeat("x", 64<<10)))
	}
	return env
}

// lockedBuffer is a buffer for the log of goroutines.
type lockedBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// registered returns the condition RuntimeRegistered of the node API.
func (r *rig) registered(t *testing.T) *qosv1alpha1.Condition {
	t.Helper()
	status, err := serveAPI(t, r.node).Status(t.Context(), &qosv1alpha1.StatusRequest{})
	must(t, err)
	for _, c := range status.GetConditions() {
		if c.GetType() == "RuntimeRegistered" {
			return c
		}
	}
	t.Fatalf("no condition RuntimeRegistered in %v", status)
	return nil
}

// TestContainersThatNRICannotListAreReported creates four containers with so large environments that the runtime cannot
// list them in messages of 4 MiB.
func TestContainersThatNRICannotListAreReported(t *testing.T) {
	const remedy = "keep the environment variables of each container below 700 KiB in total"
	r := &rig{Runtime: startRuntime(t, nriruntime.Options{}), backend: nodetest.NewBackend()}
	var last string
	for i := range 4 {
		last = r.createWith(t, r.pod(t, fmt.Sprint("large", i), ""), nriruntime.ContainerConfig{Name: "main", Env: environment(1088)})
	}

	r.node = newNode(t, r.backend)
	var log lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	options := nriplugin.Options{Socket: r.Socket(), Index: "10", Log: slog.New(slog.NewTextHandler(&log, nil))}
	go func() { ended <- nriplugin.New(r.node, options).Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()

	timeout := time.After(time.Minute)
	for r.node.Status().Runtime.SyncFailure == nil {
		select {
		case <-r.node.Changed():
		case <-timeout:
			t.Fatal("no failure is reported")
		}
	}

	if c := r.registered(t); c.GetHealthy() || c.GetReason() != "NotSynchronized" || !strings.Contains(c.GetMessage(), remedy) {
		t.Errorf("the condition is %v, want NotSynchronized with the remedy", c)
	}

	// the other three containers fit into a message
	must(t, r.RemoveContainer(t.Context(), last))

	r.wait(t, 1)
	if !strings.Contains(log.String(), remedy) {
		t.Errorf("the log has no remedy:\n%s", log.String())
	}

	for !r.node.Runtime().Synchronized {
		<-r.node.Changed()
	}

	if c := r.registered(t); !c.GetHealthy() {
		t.Errorf("after the last container was removed, the condition is %v, want healthy", c)
	}
}
