// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// refusingFiles returns the state of a plugin that refuses class files with this error, or of a ready plugin.
func refusingFiles(problem string) nodecache.State {
	state := ready(0)
	if c := state.Status.Conditions[0]; problem != "" {
		c.Healthy, c.Reason, c.Message = false, "Refused", problem
	}
	return state
}

func TestEachNewErrorOfClassFilesIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		record := func(_ context.Context, _ types.UID, r podevents.Record) error {
			got = append(got, r.Reason+": "+r.Message)
			return errors.New("no right") // the publisher goes on without the event
		}
		r := start(t, serve(t, "uid-1"), ready(0), func(o *nodeobject.Options) { o.RecordEvent = record })
		for _, problem := range []string{"", "a.yaml:1: wrong", "a.yaml:1: wrong", "a.yaml:2: wrong", "", "a.yaml:1: wrong"} {
			r.plugin.Set(refusingFiles(problem))
			bubble.Pass(time.Minute)
		}
		r.stop()

		want := []string{"QOSClassFilesRefused: a.yaml:1: wrong", "QOSClassFilesRefused: a.yaml:2: wrong", "QOSClassFilesRefused: a.yaml:1: wrong"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}
