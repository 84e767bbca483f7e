// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/volumeio"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const volumeFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: qos.noderesource.dev/volume-io
  scope: volume
  volumeio: {classes: {gold: {maxReadIops: 1000}}}
`

// TestAVolumeHasSeriesOfItsUseAndItsLimit scrapes a node on which a container has a volume with a class.
func TestAVolumeHasSeriesOfItsUseAndItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := iotest.AddDisks(simcgroup.New())
		machine.Mount("28 1 8:1 / / rw - ext4 /dev/sda1 rw")
		machine.AddCgroup("/kubepods/podu/c1")
		machine.AddFile("/proc/10/mountinfo", "40 1 0:50 / / rw - overlay overlay rw\n50 40 8:16 / /data rw - ext4 /dev/sdb rw\n")
		machine.AddFile("/sys/fs/cgroup/kubepods/podu/io.stat", "8:16 rbytes=4096 wbytes=0 rios=7 wios=0\n")
		tree, err := cgroup.Detect(machine)
		must(t, err)
		kinds := []classes.Kind{volumeio.Kind(ioapply.New(ioapply.Options{FS: machine, Tree: tree, Log: slog.New(slog.DiscardHandler)}))}
		config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(volumeFiles)}}, kinds, nil)
		must(t, err)
		n := &monitoringNode{node.New(node.Options{Kinds: kinds, Log: slog.New(slog.DiscardHandler)}), nil, prometheus.NewRegistry()}
		must(t, n.Configure(t.Context(), classes.FileSet{Config: config, Files: []string{"a.yaml"}}))
		n.Synchronize(nil, nil)
		n.registry.MustRegister(newUsageCollector(n.Node, kinds))

		c := classes.Holder{
			ID: "c1", Container: "main", CgroupsPath: "/kubepods/podu/c1", PodCgroupsPath: "/kubepods/podu", SandboxID: "s", PodUID: "u", PodName: "db",
			PodNamespace: "ns", PodAnnotations: map[string]string{"volumes.qos.noderesource.dev/main": "/data=gold"},
		}
		pod := c
		pod.ID, pod.Container, pod.CgroupsPath = "s", "", "/kubepods/podu"
		n.startPodWithVolume(t, pod, c)

		got := n.series(t)
		maps.DeleteFunc(got, func(series string, _ float64) bool { return !strings.Contains(series, "_read") })
		const labels = `{class="gold",container="main",device="sdb",namespace="ns",pod="db",resource="qos.noderesource.dev/volume-io",volume="/data"}`
		want := map[string]float64{
			"qos_volume_read_bytes_total" + labels: 4096, "qos_volume_reads_total" + labels: 7, "qos_volume_max_read_iops" + labels: 1000,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("series (-want +got):\n%s", diff)
		}
	})
}

// startPodWithVolume starts a container as the hooks do.
func (n *monitoringNode) startPodWithVolume(t *testing.T, pod, c classes.Holder) {
	t.Helper()
	n.AdoptPod(pod)
	if _, _, err := n.CreateContainer(c); err != nil {
		t.Fatal(err)
	}
	c.PID = 10
	enforce, err := n.StartContainer(c)
	if err == nil && enforce != nil {
		err = enforce(t.Context())
	}
	must(t, err)
}
