// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// noGold has the class files without class gold.
var noGold = strings.NewReplacer("{name: gold, capacity: 1}, ", "", "names: [gold, silver, bronze]", "names: [silver, bronze]").Replace(files)

// TestAReplacedContainerKeepsNoClass replaces a container in class gold by another one of the same name, and changes the new
// one to silver. If gold is then removed from the class files, the replaced container must not count as a user of gold.
func TestAReplacedContainerKeepsNoClass(t *testing.T) {
	p := pod("a", requesting("test.example/cache=gold"))
	for name, replace := range map[string]func(*testing.T, *fixture){
		"after a creation that failed without a report": func(t *testing.T, f *fixture) {
			if _, _, err := f.create(t, p, container("a-1")); err != nil {
				t.Fatal(err)
			}
			f.mustRun(t, p, container("a-2"))
		},
		"while the plugin was not connected": func(t *testing.T, f *fixture) {
			f.mustRun(t, p, container("a-1"))
			second := container("a-2")
			second.PID = 2
			f.Synchronize([]classes.Holder{p}, []state.Existing{running(p, second)})
			f.Reconcile(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			replace(t, f)
			f.wantClass(t, "a-2", cache, "gold/pod")
			f.mustUpdate(t, ownerA, map[string]string{cache: "silver"})
			f.mustConfigure(t, noGold)
			if f.MayBeUsed(cache, "gold") {
				t.Errorf("the removed class may still be used; the classes in use are %v", f.Status().Resources[0].InUse)
			}
		})
	}
}

// TestAChangedContainerIsStartedAgainAfterTheRemovalOfItsRequestedClass uses a container that was changed to another class. The runtime
// repeats the request of the creation for the container that replaces it.
func TestAChangedContainerIsStartedAgainAfterTheRemovalOfItsRequestedClass(t *testing.T) {
	p := pod("a", requesting("test.example/cache=gold"))
	for class, want := range map[string]string{"silver": "silver/update", "": "/update"} {
		for name, end := range map[string]func(*testing.T, *fixture, classes.Holder){
			"after the end of the former":              func(_ *testing.T, f *fixture, _ classes.Holder) { f.Stop("a-1") },
			"while the end of the former is not known": func(*testing.T, *fixture, classes.Holder) {},
			"after a restart of the plugin": func(t *testing.T, f *fixture, former classes.Holder) {
				f.restart(t)
				f.mustConfigure(t, noGold)
				f.Synchronize([]classes.Holder{p}, []state.Existing{running(p, former)})
				f.Stop("a-1")
			},
		} {
			t.Run(name+", changed to "+want, func(t *testing.T) {
				f := newFixture(t)
				former := f.mustRun(t, p, container("a-1"))
				f.mustUpdate(t, ownerA, map[string]string{cache: class})
				f.mustConfigure(t, noGold)
				end(t, f, former)
				for _, id := range []string{"a-2", "a-3"} {
					f.mustRun(t, p, container(id))
					f.wantClass(t, id, cache, want)
					f.Stop(id)
				}
			})
		}
	}
}

// TestAKeptClassDoesNotExceedItsCapacity removes a class while a container has it, and configures it again. Another
// container takes the slot after the first one has ended. When the class is removed again, the first container must not
// start again beside the second one.
func TestAKeptClassDoesNotExceedItsCapacity(t *testing.T) {
	f := newFixture(t)
	a, b := pod("a", requesting("test.example/cache=gold")), pod("b", requesting("test.example/cache=gold"))
	f.mustRun(t, a, container("a-1"))
	f.mustConfigure(t, noGold)
	f.Stop("a-1")
	f.mustConfigure(t, files)
	f.mustRun(t, b, container("b-1"))
	f.mustConfigure(t, noGold)

	if _, err := f.run(t, a, container("a-2")); classes.RefusalReason(err) != "ClassFull" {
		t.Errorf("two containers have a class of capacity 1; the error of the second is %v", err)
	}
	f.Stop("b-1") // its slot is free now
	f.mustRun(t, a, container("a-3"))
	f.wantClass(t, "a-3", cache, "gold/pod")
}

// TestAContainerIsStartedAgainInARemovedClassThatWasOverItsCapacity has two containers in class gold, whose capacity is then lowered to 1.
// A removed class has at least as many slots as it has containers at its removal.
func TestAContainerIsStartedAgainInARemovedClassThatWasOverItsCapacity(t *testing.T) {
	f := newFixture(t)
	f.mustConfigure(t, strings.Replace(files, "{name: gold, capacity: 1}", "{name: gold, capacity: 2}", 1))
	a, b := pod("a", requesting("test.example/cache=gold")), pod("b", requesting("test.example/cache=gold"))
	f.mustRun(t, a, container("a-1"))
	f.mustRun(t, b, container("b-1"))
	f.mustConfigure(t, files) // with capacity 1
	f.mustConfigure(t, noGold)
	f.Stop("a-1")
	f.mustRun(t, a, container("a-2")) // beside b-1, which has the other slot
	f.wantClass(t, "a-2", cache, "gold/pod")
}
