// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"log/slog"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// TestWhatIsPublished says which parts run, and what of pods is written, for what --publish has.
func TestWhatIsPublished(t *testing.T) {
	type outcome struct {
		UsesAPI                    bool
		Parts                      []string
		Conditions, Events, Follow bool
	}
	const object, pods, evictions = "*nodeobject.Publisher", "*podstatus.Publisher", "*podeviction.Evictor"
	for _, test := range []struct {
		name    string
		publish []string
		follow  bool
		want    outcome
	}{
		{"by default all but annotations that change", DefaultOptions().Publish, DefaultOptions().FollowAnnotations,
			outcome{UsesAPI: true, Parts: []string{object, pods, evictions}, Conditions: true, Events: true}},
		{"device plugins alone need no API", []string{DevicePlugin}, false, outcome{}},
		{"nothing is device plugins alone", nil, false, outcome{}},
		{"the node's object alone leaves pods unwatched", []string{NodeObject}, false, outcome{UsesAPI: true, Parts: []string{object}}},
		{"conditions without events", []string{DevicePlugin, PodConditions}, false,
			outcome{UsesAPI: true, Parts: []string{pods}, Conditions: true}},
		{"events without conditions", []string{Events}, false, outcome{UsesAPI: true, Parts: []string{pods}, Events: true}},
		{"evictions alone leave pods unwatched", []string{Evictions}, false, outcome{UsesAPI: true, Parts: []string{evictions}}},
		{"annotations are followed without anything written", []string{DevicePlugin}, true,
			outcome{UsesAPI: true, Parts: []string{pods}, Follow: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := DefaultOptions()
			options.NodeName, options.Publish, options.FollowAnnotations = "node-1", test.publish, test.follow
			if err := options.Validate(); err != nil {
				t.Fatal(err)
			}
			log := slog.New(slog.DiscardHandler)
			a := &apiPublishers{options: options, feed: nodecache.New("/none", log), registry: prometheus.NewRegistry(), log: log}
			parts, err := a.parts(&rest.Config{Host: "https://127.0.0.1:1"})
			if err != nil {
				t.Fatal(err)
			}
			got := outcome{UsesAPI: options.usesAPI()}
			for _, p := range parts {
				kind := reflect.TypeOf(p).String()
				got.Parts = append(got.Parts, kind)
				if kind == pods {
					o := a.podOptions()
					got.Conditions, got.Events, got.Follow = o.Conditions, o.Events, o.FollowAnnotations
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
