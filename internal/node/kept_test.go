// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// TestAReplacedContainerKeepsNoClass uses a container that replaces another one of the same name, and then leaves their class. The class is
// removed, and nothing may keep it until the end of the pod.
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
