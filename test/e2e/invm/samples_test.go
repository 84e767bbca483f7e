// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

const sampledResources = `
- name: ` + profileQoS + `
  linux:
    classes:
      steady: {memory: {min: 4Mi, low: 16Mi, high: 48Mi, swapMax: 8Mi, oomGroup: false}, cpu: {burst: 10ms}, pids: {max: 100}}
`

// sampler reads files of a cgroup continuously.
type sampler struct {
	stop    chan struct{}
	done    sync.WaitGroup
	samples atomic.Int64
	// `other` is read after `done`. It has the values that differ from the class, by file.
	other map[string]int
}

// sample begins to compare files with their values.
func (c *container) sample(want map[string]string) *sampler {
	s := &sampler{stop: make(chan struct{}), other: map[string]int{}}
	dir := filepath.Join("/sys/fs/cgroup", c.cgroup())
	s.done.Go(func() {
		for ; ; s.samples.Add(1) {
			select {
			case <-s.stop:
				return
			default:
			}
			for file, value := range want {
				has, err := os.ReadFile(filepath.Join(dir, file))
				if text := strings.TrimSpace(string(has)); err != nil || text != value {
					s.other[fmt.Sprintf("%s %s %v", file, text, err)]++
				}
			}
		}
	})
	return s
}

// end ends the samples, and returns the values that differ from the class.
func (s *sampler) end() map[string]int {
	close(s.stop)
	s.done.Wait()
	return s.other
}

// alwaysInClass: the files of the cgroup always have the values of the class, while the kubelet resizes the container
// as kubelet 1.37 does with MemoryQoS, while the plugin reconciles and is restarted, and while systemd reloads its
// units. There are QOS_RESIZES resizes, or more until each file was read 1,000 times. A container that leaves the class
// gets the last values of the kubelet.
func alwaysInClass(t *testing.T, n *node) {
	n.offer(t, sampledResources, profileQoS, "steady")
	p := n.runPod(t, "steady", map[string]string{keyOf("main"): profileQoS + "=steady"})
	c := p.run(t, spec{name: "main", resources: byMemoryQoS(0)})
	swap := map[string]string{"memory.swap.max": "8388608"}
	values := map[string]string{
		"memory.min": "4194304", "memory.low": "16777216", "memory.high": "50331648", "memory.oom.group": "0",
		"cpu.max.burst": "10000", "pids.max": "100",
	}
	// With systemd, runc writes a swap limit of 0 shortly before that of the class.
	if !bySystemd() {
		maps.Copy(values, swap)
	}
	s := c.sample(values)

	resizes := int(fromEnvironment(t, "QOS_RESIZES", 8))
	last := byMemoryQoS(0)
	for i := 0; i < resizes || s.samples.Load() < 1000; i++ {
		switch {
		case i == resizes/2:
			n.restartPlugin(t)
		case bySystemd() && i%4 == 1:
			systemctl(t, "daemon-reload")
		}
		last = byMemoryQoS(i + 1)
		c.resize(t, last)
		c.wantValues(t, swap)
	}
	n.wantAssignment(t, p, "main", &qos.Assignment{Name: profileQoS, Class: "steady", Source: qos.Source_SOURCE_CONTAINER, RequestedBy: keyOf("main")})
	other := s.end()
	t.Logf("%d samples", s.samples.Load())
	if len(other) > 0 {
		t.Errorf("values that are not those of the class, and how often: %v", other)
	}

	p.update(t, "main", profileQoS+"=")
	c.wantValues(t, last.Unified)
	c.wantValues(t, map[string]string{"cpu.max.burst": "0", "pids.max": "max"})
}

// byMemoryQoS returns the resources that a kubelet with MemoryQoS requests for a container whose size changes.
func byMemoryQoS(i int) *cri.LinuxContainerResources {
	memory := int64(64+i%3*16) << 20
	resources := limited(memory, max(20_000, int64(i%4)*30_000))
	resources.Unified = map[string]string{
		"memory.oom.group": "1", "memory.min": "0", "memory.low": fmt.Sprint(memory / 8), "memory.high": fmt.Sprint(memory / 4 * 3),
	}
	return resources
}
