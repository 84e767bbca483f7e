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
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// TestPublishersAreThoseOfTheFlags checks which publishers run, and what is written to pods, for values of --publish.
func TestPublishersAreThoseOfTheFlags(t *testing.T) {
	type outcome struct {
		UsesAPI                    bool
		Publishers                 []string
		Conditions, Events, Follow bool
	}

	const object, pods, waiting, evictions = "*nodeobject.Publisher", "*podstatus.Publisher", "*unoffered.Publisher", "*podeviction.Evictor"
	for _, test := range []struct {
		name    string
		publish []string
		follow  bool
		want    outcome
	}{
		{"by default, all but --follow-annotations", DefaultOptions().Publish, DefaultOptions().FollowAnnotations,
			outcome{UsesAPI: true, Publishers: []string{object, pods, waiting, evictions}, Conditions: true, Events: true}},
		{"device plugins alone need no API", []string{DevicePlugin}, false, outcome{}},
		{"the node's object alone leaves pods unwatched", []string{NodeObject}, false, outcome{UsesAPI: true, Publishers: []string{object}}},
		{"conditions without events", []string{DevicePlugin, PodConditions}, false,
			outcome{UsesAPI: true, Publishers: []string{pods}, Conditions: true}},
		{"events without conditions", []string{Events}, false, outcome{UsesAPI: true, Publishers: []string{pods, waiting}, Events: true}},
		{"evictions alone leave pods unwatched", []string{Evictions}, false, outcome{UsesAPI: true, Publishers: []string{evictions}}},
		{"device plugins with --follow-annotations read pods, and write nothing", []string{DevicePlugin}, true,
			outcome{UsesAPI: true, Publishers: []string{pods}, Follow: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := DefaultOptions()
			options.NodeName, options.Publish, options.FollowAnnotations = "node-1", test.publish, test.follow
			must.Do(t, options.Validate())

			log := slog.New(slog.DiscardHandler)
			a := &apiPublishers{options: options, cache: nodecache.New("/none", log), registry: prometheus.NewRegistry(), log: log}
			publishers := must.Get(a.publishers(&rest.Config{Host: "https://127.0.0.1:1"}))(t)

			got := outcome{UsesAPI: options.usesAPI()}
			for _, p := range publishers {
				kind := reflect.TypeOf(p).String()
				got.Publishers = append(got.Publishers, kind)
				if kind == pods {
					o := a.podOptions(nil)
					got.Conditions, got.Events, got.Follow = o.Conditions, o.Events, o.FollowAnnotations
				}
			}

			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
