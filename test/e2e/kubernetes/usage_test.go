// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// usageIsMeasured compares the JSON output of "kubectl qos top usage", for a node whose containers are monitored, with the
// kernel's counter, which is constant on the emulated CPU.
func usageIsMeasured(t *testing.T, n *node) {
	n.runPods(t, pod{name: "measured", classes: n.asks("gold")})
	n.inClass(t, "measured", "gold")
	group := "/sys/fs/resctrl/qos-gold/mon_groups/qos-" + n.containerID("measured")
	untilDone(t, "the container has a monitoring group", func() (string, error) { return n.machine.run("ls", group) })

	want, err := n.machine.run("cat", group+"/mon_data/mon_L3_00/llc_occupancy")
	must(t, err)
	var list struct {
		Items []struct {
			Node, Resource, Class, Namespace, Pod, Container string
			Measurements                                     []struct {
				Name, Part string
				Value      float64
			}
		}
	}

	var output string
	until(t, "the node answers", func() (bool, string) { // the emulated machine may answer only after the timeout of the command
		output, err = n.tryQOS("", "top", "usage", n.name, "--once", "--containers", "-o", "json")
		return err == nil, output
	})

	must(t, json.Unmarshal([]byte(output), &list))

	var got []string
	for _, item := range list.Items {
		for _, m := range item.Measurements {
			if item.Pod == "measured" && m.Name == "llc_occupancy_bytes" {
				got = append(got, fmt.Sprintln(item.Node, item.Resource, item.Class, item.Namespace, item.Container, m.Part, m.Value))
			}
		}
	}

	number, err := strconv.ParseFloat(strings.TrimSpace(want), 64)
	if line := fmt.Sprintln(n.name, "k8s.io/rdt gold default main 0", number); err != nil || number == 0 || !slices.Equal(got, []string{line}) {
		t.Errorf("the occupancy is %q, and the kernel's is %q, in the document\n%s", got, want, output)
	}
}
