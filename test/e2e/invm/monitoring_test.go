// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// monitored reads what a container uses from its monitoring group. Meanwhile the class of the container changes, the
// plugin restarts, and another program removes the group. The case uses two RMIDs. The kernel does not use these RMIDs
// again, because the emulated CPU makes up the occupancy of removed groups, and this occupancy never falls.
func monitored(t *testing.T, p *pod) {
	n := p.node
	writeClassFile(t, strings.Replace(classFile, "  rdt:\n", "  rdt:\n    monitoring: {containers: [gold, silver]}\n", 1))
	t.Cleanup(func() { writeClassFile(t, classFile) })
	eventually(t, "the class file is read", func() error {
		if text := strings.Join(n.rdtConditions(t), "\n"); !strings.Contains(text, "ContainersMonitored") {
			return fmt.Errorf("conditions %s", text)
		}
		return nil
	})

	c, err := p.create(t, spec{name: "main", args: []string{"show", "/proc/self/cpu_resctrl_groups"}})
	must(t, err)
	c.start(t)
	name := "qos-" + c.id
	// The hook waits 0.2 s for the monitoring group, which is too short on a busy host.
	if got, want := c.printed(t), "res:qos-gold\nmon:"+name; got != want && got != "res:qos-gold\nmon:" {
		t.Errorf("groups at the first instruction: %q, want %q", got, want)
	}
	metered := func(class string) error {
		group := filepath.Join(resctrlRoot, "qos-"+class, "mon_groups", name)
		counter, err := os.ReadFile(filepath.Join(group, "mon_data/mon_L3_00/llc_occupancy"))
		if err != nil {
			return err
		}
		metric := fmt.Sprintf(`container_llc_occupancy_bytes{cache_id="0",class=%q,container="main",namespace=%q,pod=%q} `,
			class, p.config.Metadata.Namespace, p.config.Metadata.Name)
		_, rest, found := strings.Cut(metrics(t), "\n"+metric)
		value, _, _ := strings.Cut(rest, "\n")
		var got, want float64
		_, scanErr := fmt.Sscan(value+" "+string(counter), &got, &want)
		if !found || scanErr != nil || got != want || want == 0 {
			return fmt.Errorf("%s is %q, want %q", metric, value, counter)
		}
		return c.inGroup("qos-" + class)
	}
	eventually(t, "the container is measured", func() error { return metered("gold") })

	_, err = output("qos-nri-plugin", "update", p.name(), "main", "rdt=silver")
	must(t, err)
	eventually(t, "the container is measured in its new class", func() error { return metered("silver") })
	if text := mustRead(t, filepath.Join(resctrlRoot, "qos-silver/mon_groups", name, "tasks")); strings.TrimSpace(text) == "" {
		t.Error("the change of class has emptied the monitoring group")
	}
	n.restartPlugin(t)
	eventually(t, "the container is measured after a restart of the plugin", func() error { return metered("silver") })
	must(t, os.Remove(filepath.Join(resctrlRoot, "qos-silver/mon_groups", name)))
	eventually(t, "the container is measured again after another program has removed its group", func() error { return metered("silver") })

	c.remove(t)
	eventually(t, "the monitoring group of the container is gone", func() error { return gone(filepath.Join(resctrlRoot, "qos-silver/mon_groups", name)) })
}
