// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package unoffered_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

const misspelled = "qos.noderesource.dev/rdt.glod"

func oneNode() []nodeqosv1alpha1.NodeQOSResources {
	return []nodeqosv1alpha1.NodeQOSResources{node("n1", time.Now(), "gold")}
}

// names returns many names of classes that no node offers.
func names(count, length int) (names []corev1.ResourceName) {
	for i := range count {
		names = append(names, corev1.ResourceName(fmt.Sprintf("qos.noderesource.dev/rdt.%s%04d", strings.Repeat("x", length), i)))
	}
	return names
}

// TestANamespaceWithManyWaitingPodsDoesNotDisplaceAnother: the publisher keeps 50 pods of a namespace, so there are 51
// events.
func TestANamespaceWithManyWaitingPodsDoesNotDisplaceAnother(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		for i := range 2000 {
			c.watches[0].Add(waiting("crowd", fmt.Sprint("p", i), misspelled))
			synctest.Wait() // the watch has a small buffer
		}
		c.watches[0].Add(waiting("b", "web", misspelled))
		bubble.Pass(5 * time.Minute)
		if got := c.messages("web"); len(got) != 1 || len(c.events) != 51 {
			t.Errorf("%d events, and %q for the pod of the other namespace, want one for it", len(c.events), got)
		}
	})
}

// TestManyNamespacesWithManyPodsLeaveRoomForAnother: 50 pods of each of 20 namespaces fill the queue, which keeps 1000 pods.
func TestManyNamespacesWithManyPodsLeaveRoomForAnother(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		for i := range 1000 {
			c.watches[0].Add(waiting(fmt.Sprint("crowd", i%20), fmt.Sprint("p", i), misspelled))
			synctest.Wait()
		}
		c.watches[0].Add(waiting("b", "web", misspelled))
		bubble.Pass(2 * time.Minute)
		if got := c.messages("web"); len(got) != 1 {
			t.Errorf("%d events, and %q for the pod of the other namespace, want one for it", len(c.events), got)
		}
	})
}

// TestAPodWithManyLimitsHasOneEventThatNamesSomeOfThem has 50 pods, each with 400 limits that no node offers. Only 8
// limits of a pod are checked, and the event names 3 of them.
func TestAPodWithManyLimitsHasOneEventThatNamesSomeOfThem(t *testing.T) {
	const want = "Warning QOSClassNotOffered : no node offers qos.noderesource.dev/rdt.x0000, qos.noderesource.dev/rdt.x0001, " +
		"qos.noderesource.dev/rdt.x0002 and 5 more, so the pod waits; 392 more of its limits were not checked; " +
		"nodes offer qos.noderesource.dev/rdt.gold, vendor.example/xyz.fast"
	runOne(t, func(t *testing.T, c *cluster) {
		// is longer than any valid name, so it does not count
		tooLong := corev1.ResourceName("qos.noderesource.dev/rdt." + strings.Repeat("a", 300))
		for i := range 50 {
			c.watches[0].Add(waiting("crowd", fmt.Sprint("p", i), append(names(400, 1), tooLong)...))
		}
		bubble.Pass(time.Minute) // the first events are written
		c.watches[0].Add(waiting("b", "web", misspelled))
		bubble.Pass(2 * time.Minute)
		if got := c.messages("p7"); len(got) != 1 || got[0] != want {
			t.Errorf("got %q; want %q", got, want)
		}
		// each of the 51 pods has one event, also the last one, which is in another namespace
		if got := c.messages("web"); len(got) != 1 || c.writes != 51 {
			t.Errorf("%d writes, and %q for the pod of the other namespace, want 51 and one", c.writes, got)
		}
	})
}

// TestNamespacesTakeTurns has 50 waiting pods in one namespace, and one in another. The first report writes 10 events,
// and one of them is for the other namespace.
func TestNamespacesTakeTurns(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		for i := range 50 {
			c.watches[0].Add(waiting("crowd", fmt.Sprint("p", i), misspelled))
		}
		c.watches[0].Add(waiting("b", "web", misspelled))
		for i := 0; i < 30 && len(c.messages("web")) == 0; i++ {
			bubble.Pass(time.Second)
		}
		if got := c.messages("web"); len(got) != 1 || len(c.events) != 10 {
			t.Errorf("after one report: %d events, and %q for the pod of the other namespace, want 10 and one", len(c.events), got)
		}
	})
}

// TestTheWatchIsReadWhileAnEventIsWritten: in the namespace "slow", the API server needs a minute to create an event.
func TestTheWatchIsReadWhileAnEventIsWritten(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		c.watches[0].Add(waiting("slow", "web", misspelled))
		bubble.Pass(30 * time.Second) // the write has begun
		for range 200 {
			c.watches[0].Modify(waiting("b", "web", misspelled)) // panics if the watch's buffer is full
			synctest.Wait()
		}
		if len(c.messages("web")) > 0 {
			t.Fatal("the write has ended too early for this test")
		}
		bubble.Pass(5 * time.Minute)
		if len(c.events) != 2 {
			t.Errorf("%d events; want 2", len(c.events))
		}
	})
}

// TestANamespaceThatRefusesEventsDoesNotStopThoseOfOthers: the namespace "full" has a quota for events, and "busy" has
// a rate limit (the admission plugin EventRateLimit).
func TestANamespaceThatRefusesEventsDoesNotStopThoseOfOthers(t *testing.T) {
	for _, namespace := range []string{"full", "busy"} {
		t.Run(namespace, func(t *testing.T) {
			runOne(t, func(t *testing.T, c *cluster) {
				for i := range 20 {
					c.watches[0].Add(waiting(namespace, fmt.Sprint("p", i), misspelled))
					c.watches[0].Add(waiting("b", fmt.Sprint("w", i), misspelled))
				}
				bubble.Pass(10 * time.Minute)
				if len(c.events) != 20 || len(c.watches) != 1 || strings.Count(c.log.String(), "\n") != 1 {
					t.Errorf("%d events after %d watches, and the log is\n%s", len(c.events), len(c.watches), c.log.String())
				}
				if failed := c.writes - 20; failed < 5 || failed > 60 || c.lists > 3 {
					t.Errorf("%d failed writes and %d lists of the nodes in 10 minutes; want retries now and then, without a list", failed, c.lists)
				}
			})
		})
	}
}

// TestAPodThatWaitsIsComparedWithTheNodesOnce modifies a waiting pod again and again, as the scheduler does with the
// pod's condition.
func TestAPodThatWaitsIsComparedWithTheNodesOnce(t *testing.T) {
	for _, name := range []corev1.ResourceName{misspelled, "qos.noderesource.dev/rdt.gold", "nvidia.com/mig-1g.5gb"} {
		t.Run(string(name), func(t *testing.T) {
			runOne(t, func(t *testing.T, c *cluster) {
				before := c.lists
				for range 40 {
					c.watches[0].Modify(waiting("a", "web", name))
					bubble.Pass(30 * time.Second)
				}
				if lists := c.lists - before; lists != 1 || c.writes > 1 {
					t.Errorf("%d lists of all nodes and %d writes, want 1 and at most 1", lists, c.writes)
				}
			})
		})
	}
}

// TestPodsThatWaitForOfferedClassesShareAList: no pod gets an event, because each one waits for an offered class, and for a resource that is
// no class. The nodes are listed for the first pod, and when the list is older than 10 minutes.
func TestPodsThatWaitForOfferedClassesShareAList(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		before := c.lists
		for i := range 40 {
			c.watches[0].Add(waiting("a", fmt.Sprint("full", i), "qos.noderesource.dev/rdt.gold", "nvidia.com/mig-1g.5gb"))
			bubble.Pass(30 * time.Second)
		}
		if lists := c.lists - before; lists > 3 || c.writes > 0 {
			t.Errorf("%d lists of all nodes in 20 minutes and %d writes, want at most 3 (after 0, 10 and 20 minutes) and none", lists, c.writes)
		}
	})
}

func TestAClassThatIsNewSinceTheLastListCountsAsOffered(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		c.watches[0].Add(waiting("a", "first", misspelled))
		bubble.Pass(30 * time.Second)
		c.mu.Lock()
		c.nodes = append(c.nodes, node("n2", time.Now(), "new"))
		c.mu.Unlock()
		c.watches[0].Add(waiting("a", "second", "qos.noderesource.dev/rdt.new"))
		bubble.Pass(5 * time.Minute)
		if first, second := c.messages("first"), c.messages("second"); len(first) != 1 || len(second) > 0 {
			t.Errorf("the events are %q for the first pod and %q for the second, want only one for the first", first, second)
		}
	})
}

// TestTheSearchForTheFirstPublisherRequestsFewNodes: each object of a node can have more than 1 MiB, and all publishers
// read the first ones. Five nodes have expired, so the responses have 1, 2 and 4 nodes.
func TestTheSearchForTheFirstPublisherRequestsFewNodes(t *testing.T) {
	nodes := func() (nodes []nodeqosv1alpha1.NodeQOSResources) {
		for i := range 20 {
			nodes = append(nodes, node(fmt.Sprintf("n%02d", i), time.Now().Add(time.Duration(i-5)*time.Hour), "gold"))
		}
		return nodes
	}
	run(t, []string{"n06"}, nodes, func(t *testing.T, c *cluster) {
		if !slices.Equal(c.limits, []int64{1, 2, 4}) {
			t.Errorf("the first publisher was found with responses of %v nodes, want 1, 2 and 4", c.limits)
		}
	})
	// the first node reports, so the first response is enough
	run(t, []string{"n00"}, oneNode, func(t *testing.T, c *cluster) {
		if !slices.Equal(c.limits, []int64{1}) {
			t.Errorf("the first publisher was found with responses of %v nodes, want one of 1", c.limits)
		}
	})
}

// TestAListOfAllNodesHasFewAndSmallResponses: a list of all nodes of a large cluster must not take thousands of
// responses, and a response must not need much memory. A response has at most 100 nodes, and about 4,000 holders.
func TestAListOfAllNodesHasFewAndSmallResponses(t *testing.T) {
	for _, test := range []struct {
		nodes, holders int   // holders is the number of holders of each node
		largest        int64 // the number of nodes in the largest response
	}{
		{nodes: 150, holders: 0, largest: 100},
		{nodes: 80, holders: 110, largest: 36}, // 3,960 holders
		{nodes: 8, holders: 2000, largest: 2},
		{nodes: 4, holders: 9000, largest: 1},
	} {
		nodes := func() (nodes []nodeqosv1alpha1.NodeQOSResources) {
			for i := range test.nodes {
				node := node(fmt.Sprintf("n%03d", i), time.Now(), "gold")
				node.Status.QOSResources.ContainerQOSResources[0].Classes[0].Holders = make([]nodeqosv1alpha1.Holder, test.holders)
				nodes = append(nodes, node)
			}
			return nodes
		}
		run(t, []string{"n000"}, nodes, func(t *testing.T, c *cluster) {
			c.watches[0].Add(waiting("a", "first", misspelled))
			bubble.Pass(30 * time.Second)
			if got := slices.Max(c.limits); got != test.largest || c.writes != 1 {
				t.Errorf("with %d holders each, a response has %d nodes, want %d; %d events", test.holders, got, test.largest, c.writes)
			}
		})
	}
}

// TestTheLimitsOfWaitingPodsAreNotKept has pods that are as large as etcd allows.
func TestTheLimitsOfWaitingPodsAreNotKept(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runOne(t, func(t *testing.T, c *cluster) {
		before := heap()
		for i := range 50 {
			c.watches[0].Add(waiting("tenant", fmt.Sprint("p", i), names(8000, 54)...))
			synctest.Wait()
		}
		if after := heap(); after > before+20<<20 {
			t.Errorf("the publisher keeps %d MiB", (after-before)>>20)
		}
	})
}

func TestTheErrorThatEndsAWatchIsLogged(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		status := apierrors.NewResourceExpired("too old resource version").Status()
		c.watches[0].Error(&status)
		bubble.Pass(time.Minute)
		if len(c.watches) != 2 || !strings.Contains(c.log.String(), "too old resource version") {
			t.Errorf("%d watches, and the log is %q; want a second watch, and the error in the log", len(c.watches), c.log.String())
		}
	})
}
