// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

func TestAFailureOfSomePodsIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"), pod("job"), pod("refused"), pod("refused-too"))
		var fixed atomic.Bool
		r.client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			patch, ok := a.(clienttesting.PatchAction)
			bad := ok && strings.HasPrefix(patch.GetName(), "refused") && !fixed.Load()
			return bad, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", fmt.Errorf("policy says no"))
		})

		r.plugin.set(nil, "web=gold", "job=gold", "refused=gold", "refused-too=gold")
		r.start(both())
		defer r.stop()
		for i := range 200 {
			r.plugin.set(nil, "web="+[]string{"silver", "gold"}[i%2], "job=gold", "refused=gold", "refused-too=gold")
			bubble.Pass(20 * time.Second)
		}

		r.log.Expect(t, `what="write the condition of pods" namespace=default problem="the API server rejects the request: pods is forbidden: policy says no"`)
		fixed.Store(true)
		bubble.Pass(2 * time.Minute)
		r.log.Expect(t, "works again")
	})
}

func TestTheEndOfAWatchOutageIsLogged(t *testing.T) {
	for name, pods := range map[string][]runtime.Object{"with pods": {pod("web")}, "without any": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pods...)
				var broken atomic.Bool
				r.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return broken.Load(), nil, apierrors.NewServiceUnavailable("etcd is away")
				})

				streams := make(chan *watch.FakeWatcher, 100)
				r.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
					stream := watch.NewFake()
					streams <- stream
					return true, stream, nil
				})

				r.start(both())
				defer r.stop()
				for range 2 {
					broken.Store(true)
					stream := <-streams
					stream.Error(&metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired})
					stream.Stop()
					bubble.Pass(10 * time.Minute)
					r.log.Expect(t, "etcd is away")
					broken.Store(false)
					bubble.Pass(2 * time.Minute)
					r.log.Expect(t, "works again")
				}
			})
		})
	}
}
