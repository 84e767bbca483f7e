// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nri0123_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// changesBesideHooks changes the class of a container QOS_CHANGES times, while the runtime calls hooks all the time. With NRI before
// 0.12.1, the runtime would hang.
func changesBesideHooks(t *testing.T, r *rig) {
	r.start(t)
	pod, _ := r.runWith(t, nriruntime.PodConfig{Name: "changes", UID: "changes"}, nriruntime.ContainerConfig{Name: "main"})
	connection, err := nodeclient.Connect(filepath.Join(r.dir, "qos.sock"))
	must(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	plugin := qosv1alpha1.NewNodeQOSClient(connection)

	var changes, calls atomic.Int64
	var workers sync.WaitGroup
	ended, began := make(chan struct{}), time.Now()
	workers.Go(func() {
		defer close(ended)
		for n := int64(fromEnvironment(t, "QOS_CHANGES", 300)); changes.Load() < n; changes.Add(1) {
			if err := changeClass(t.Context(), plugin, []string{"heavy", ""}[changes.Load()%2]); err != nil {
				t.Errorf("change %d: %v", changes.Load()+1, err)
				return
			}
		}
	})
	for i := range 4 {
		workers.Go(func() {
			for ; !done(ended); calls.Add(1) {
				if err := r.callHooks(t.Context(), pod, fmt.Sprint("passing-", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d changes beside %d resized containers in %s", changes.Load(), calls.Load(), time.Since(began).Round(time.Second))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// changeClass moves the container "main" into a class.
func changeClass(ctx context.Context, plugin qosv1alpha1.NodeQOSClient, class string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := plugin.UpdateContainerQOSResources(ctx, &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: "changes", Container: "main", QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: "blockio", Class: class}},
	})
	return err
}

// callHooks runs a container, resizes it and removes it.
func (r *rig) callHooks(ctx context.Context, pod, name string) error {
	id, err := r.CreateContainer(ctx, pod, nriruntime.ContainerConfig{Name: name})
	if err != nil {
		return err
	}
	resize := func(ctx context.Context, id string) error {
		return r.UpdateContainer(ctx, id, &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(300))}})
	}
	for _, step := range []func(context.Context, string) error{r.StartContainer, resize, r.StopContainer, r.RemoveContainer} {
		if err := step(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func fromEnvironment(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	must(t, err)
	return number
}
