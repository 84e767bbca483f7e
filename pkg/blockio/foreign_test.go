// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/foreign"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const byFile = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  blockio: {configFile: /etc/blockio.yaml}
`

// TestAFileOfContainerdAndCRIOIsAcceptedUnchanged uses a machine with a disk for each device pattern in the file. The
// ID of the disk sdb matches the pattern of SSDs.
func TestAFileOfContainerdAndCRIOIsAcceptedUnchanged(t *testing.T) {
	text, err := foreign.BlockIO()
	must(t, err)

	m := bfqOnAll(simcgroup.New())
	m.AddDisk("vda", 252, 0)
	must(t, m.WriteFile("/sys/block/vda/queue/scheduler", []byte("bfq")))

	m.AddSymlink("/dev/disk/by-id/ata-SSD_1", "../../sdb")
	f := newFixture(t, m, classes.ContainerScope)
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(byFile)}}, []classes.Kind{Kind(f.backend.cgroups)},
		func(string) ([]byte, error) { return text, nil })
	must(t, err)

	must(t, f.backend.Apply(t.Context(), config.Resources[0].Backend))

	// The disk sdb keeps the IOPS limits of the second item. goresctrl's code does the same, although a comment in goresctrl
	// says otherwise (docs/blockio.md).
	want := map[string]map[string]string{
		"HighPrioFullSpeed": {"io.bfq.weight": "default 400", "io.weight": "default 3940"},
		"LowPrioThrottled": {
			"io.max": "8:0 rbps=50000000 wbps=10000000 riops=10000 wiops=5000\n" +
				"8:16 rbps=100000000 wbps=40000000 riops=10000 wiops=5000\n" +
				"252:0 rbps=50000000 wbps=10000000 riops=10000 wiops=5000",
			"io.bfq.weight": "default 80\n8:0 50\n8:16 50\n252:0 50",
			"io.weight":     "default 708",
		},
	}

	if diff := cmp.Diff(want, f.backend.Values()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if got := f.backend.Status(); len(got.Degraded) > 0 {
		t.Errorf("the degraded classes are %v, want none", got.Degraded)
	}
}
