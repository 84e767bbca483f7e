// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// later is a queue that adds each item with a delay of at least one nanosecond. The controller adds a pool again and again,
// until a time has passed. The clock of synctest stands still while goroutines run, so without a delay, the time would never pass.
type later struct {
	workqueue.TypedRateLimitingInterface[string]
}

func (q later) AddAfter(item string, wait time.Duration) {
	q.TypedRateLimitingInterface.AddAfter(item, wait+1)
}

// controller publishes with the controller of the upstream library, as the library's Helper does.
type controller struct {
	client *fake.Clientset
	runs   *resourceslice.Controller
}

func (c *controller) PublishResources(ctx context.Context, resources resourceslice.DriverResources) (err error) {
	if c.runs != nil {
		c.runs.Update(&resources)
		return nil
	}
	owner := resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: node}
	c.runs, err = resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: DriverName, KubeClient: c.client, Owner: &owner, Resources: &resources,
		Queue: later{workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())},
	})
	return err
}

// writes returns the requests with which the driver has written to the API.
func (c *controller) writes() (list []string) {
	for _, action := range c.client.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) {
			list = append(list, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	return list
}

// newController returns a controller whose API has a Node. Its API gives names and versions to ResourceSlices.
func newController() *controller {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "node-uid"}})
	version := 0
	number := func(object runtime.Object) (bool, runtime.Object, error) {
		version++
		slice := object.(*resourcev1.ResourceSlice)
		slice.ResourceVersion = fmt.Sprint(version)
		if slice.Name == "" {
			slice.Name = slice.GenerateName + slice.ResourceVersion
		}
		return false, nil, nil
	}
	client.PrependReactor("create", "resourceslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return number(a.(clienttesting.CreateAction).GetObject())
	})
	client.PrependReactor("update", "resourceslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return number(a.(clienttesting.UpdateAction).GetObject())
	})
	return &controller{client: client}
}

// TestTheDriverWritesOnceForAChangeAndNotInAnIdleHour counts the writes to the API, with a claim that is prepared all the time.
func TestTheDriverWritesOnceForAChangeAndNotInAnIdleHour(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		api := newController()
		d := newDriver(t, dir, state(goldAndSilver(), web("gold")))
		cache := cachetest.New(state(goldAndSilver(), web("gold")))
		d.plugin, d.client = cache, api.client
		c := ofWeb("1", "rdt-gold")
		must.Do(t, api.client.Tracker().Add(c))
		must.Get(d.prepareOne(t, c))(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			d.publishLoop(ctx, api)
		}()
		wrote := func(what string, want ...string) {
			t.Helper()
			<-time.After(time.Hour)
			synctest.Wait()
			if got := slices.Sorted(slices.Values(api.writes())); !slices.Equal(got, want) {
				t.Errorf("%s: an hour later, the driver has written %q, want %q", what, got, want)
			}
			api.client.ClearActions()
		}

		wrote("the start", "create resourceslices", "patch resourceclaims")
		wrote("nothing")
		cache.Set(state(goldAndSilver()[1:], web("gold")))
		wrote("a class was removed", "update resourceslices")
		cache.Set(state(goldAndSilver()[1:], web("gold")))
		wrote("the same state again")
		wrote("nothing")

		cancel()
		<-ended
		api.runs.Stop()
	})
}
