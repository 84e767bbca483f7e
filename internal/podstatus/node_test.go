// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
	"github.com/qos-nri/qos-nri-plugin/test/apiserver"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// nodeOf runs a node API, its watch cache and a publisher that follows annotations.
func nodeOf(t *testing.T, client kubernetes.Interface) *apitest.Node {
	t.Helper()
	n := apitest.NewNode()
	must.Do(t, n.Load(t.Context(), apitest.Files))
	served := must.Get(apitest.Serve(context.Background(), n, t.TempDir()))(t)
	conn := must.Get(nodeclient.Connect(served.Socket))(t)

	api, cache := qosv1alpha1.NewNodeQOSClient(conn), nodecache.New(served.Socket, slog.New(slog.DiscardHandler))
	p := podstatus.New(cache, apiserver.Core(client), podstatus.Options{
		NodeName: "worker", Conditions: true, Events: true, FollowAnnotations: true,
		Update: func(ctx context.Context, r *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
			_, err := api.UpdateContainerQOSResources(ctx, r)
			return err
		},
		Writes: kubeapi.NewWrites(prometheus.NewRegistry()), Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- cache.Run(ctx) }()
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		_ = conn.Close()
		if err := served.Stop(); err != nil {
			t.Error(err)
		}
	})

	return n
}

// awaitCondition waits until a pod has the condition with a message.
func awaitCondition(t *testing.T, client kubernetes.Interface, name string, status corev1.ConditionStatus, message string) corev1.PodCondition {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pods := client.CoreV1().Pods("default")
	watched := must.Get(pods.Watch(ctx, metav1.ListOptions{}))(t)
	defer watched.Stop()

	for {
		pod := must.Get(pods.Get(ctx, name, metav1.GetOptions{}))(t)
		condition := podspec.AssignedCondition(pod)
		if condition != nil && condition.Status == status && condition.Message == message {
			return *condition
		}
		select {
		case <-watched.ResultChan():
		case <-ctx.Done():
			t.Fatalf("the condition of %s is %+v; want %s: %s", name, condition, status, message)
		}
	}
}

// TestConditionsWithARealNodeAPI: the pod next is refused class gold, which has one slot, until the pod web gives it up.
func TestConditionsWithARealNodeAPI(t *testing.T) {
	web := pod("web")
	web.Annotations = map[string]string{"qos.noderesource.dev/pod": "rdt=gold,vendor.example/network=fast"}
	next := pod("next")
	next.Annotations = map[string]string{"qos.noderesource.dev/pod": "rdt=gold"}
	plain := pod("plain")
	plain.Annotations = nil
	client := fake.NewClientset(web, plain, next)
	n := nodeOf(t, client)
	for name, request := range map[string]string{"web": web.Annotations["qos.noderesource.dev/pod"], "plain": ""} {
		must.Do(t, n.RunPod(t.Context(), "default", name, request, "main"))
	}

	gold := "pod: vendor.example/network fast (pod); main: k8s.io/rdt gold (pod), k8s.io/blockio system default"
	awaitCondition(t, client, "web", corev1.ConditionTrue, gold)
	awaitCondition(t, client, "plain", corev1.ConditionTrue,
		"pod: vendor.example/network system default; main: k8s.io/rdt bronze (default), k8s.io/blockio system default")

	err := n.RunPod(t.Context(), "default", "next", "rdt=gold", "main")
	if err == nil {
		t.Fatal("a second container got gold, whose capacity is 1")
	}

	system := "pod: vendor.example/network system default"
	refused := awaitCondition(t, client, "next", corev1.ConditionFalse, err.Error()+"; in effect: "+system)
	if refused.Reason != "ClassFull" {
		t.Errorf("reason %s, want ClassFull", refused.Reason)
	}

	// web gives gold up
	patch := `{"metadata":{"annotations":{"qos.noderesource.dev/pod":"rdt=bronze,vendor.example/network=fast"}}}`
	if _, err := client.CoreV1().Pods("default").Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	awaitCondition(t, client, "web", corev1.ConditionTrue,
		"pod: vendor.example/network fast (pod); main: k8s.io/rdt bronze (update), k8s.io/blockio system default")
	if class := n.Backends[apitest.RDT].Enforced()["id-web-main"]; class != "bronze" {
		t.Errorf("the container is enforced in %q, want bronze", class)
	}

	must.Do(t, n.RunPod(t.Context(), "default", "next", "rdt=gold", "main"))

	awaitCondition(t, client, "next", corev1.ConditionTrue, system+"; main: k8s.io/rdt gold (pod), k8s.io/blockio system default")
}
