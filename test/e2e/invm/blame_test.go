// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// blameClasses has a class that limits what the containers use.
const blameClasses = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  classes: [{name: slow}]
  blockio:
    Classes:
      slow: [{Devices: [/dev/nullb0], ThrottleReadIOPS: 20}]
`

// The containers of TestBlame, and the times of a draw. The plugin takes a sample each second.
const (
	blameContainers = 12
	quietTime       = 6 * time.Second
	loudTime        = 5 * time.Second
	afterTime       = 3 * time.Second
)

// allPods is the cgroup of all pods. Like the kubelet, the draws of memory limit its memory.
const allPods = "/sys/fs/cgroup/kubepods"

// load is the work of a container in each half of a second. A number of threads compute for some milliseconds and make
// operations on the disk. The container holds memory (in MiB), and reads blocks through the page cache.
type load struct{ threads, milliseconds, operations, memory, blocks int }

// drawing has the containers of the draws.
type drawing struct {
	*node
	pod        *pod
	random     *rand.Rand
	containers []*container
	// `own` is the load of the victim. `loud` is the additional load of the culprit.
	own, loud load
}

// TestBlame draws a victim, a culprit and a resource QOS_DRAWS times, and a victim without a culprit as often. Ten
// other containers are busy bystanders. The machine has two slow CPUs, and its disk /dev/nullb0 makes one operation at
// a time, in 10 ms. In the draws of memory, the limit of all pods is less than the memory that they use. The culprit
// must stand first in 18 of 20 draws, and at most 1 of 20 draws without a culprit may name one.
func TestBlame(t *testing.T) {
	n := startNode(t)
	writeClassFile(t, blameClasses)
	n.startPlugin(t)
	t.Cleanup(func() { n.plugin.end(t, syscall.SIGTERM) })

	seed := fromEnvironment(t, "QOS_DRAWS_SEED", uint64(time.Now().UnixNano()))
	t.Logf("QOS_DRAWS_SEED=%d", seed)
	d := &drawing{node: n, pod: n.runPod(t, "shared", nil), random: rand.New(rand.NewPCG(seed, 0))}
	for i := range blameContainers {
		must(t, os.MkdirAll(d.dir(i), 0o755))
		d.set(t, i, d.busy())
		d.containers = append(d.containers, d.pod.run(t, spec{
			name: d.name(i), args: []string{"obey", "/load/load", "/dev/nullb0", "/dev/vda", strconv.Itoa(i)}, devices: []string{"/dev/vda", "/dev/nullb0"},
			mounts: []*cri.Mount{{ContainerPath: "/load", HostPath: d.dir(i)}},
		}))
	}

	draws := int(fromEnvironment(t, "QOS_DRAWS", 20))
	valid, first, wrong := map[string]int{}, map[string]int{}, 0
	for done, void := 0, 0; done < draws; {
		order := d.random.Perm(blameContainers)
		victim, culprit, resource := order[0], order[1], []string{"io", "cpu", "memory"}[d.random.IntN(3)]
		named, suffered := d.draw(t, resource, victim, culprit)
		if !suffered {
			if void++; void > draws {
				t.Fatalf("this host is too busy: in %d draws, the victim did not wait for its culprit", void)
			}
			t.Logf("void: %s on %s by %s: the victim did not wait for it (%q stands first)", resource, d.name(victim), d.name(culprit), named)
			continue
		}
		done++
		valid[resource]++
		if named == d.name(culprit) {
			first[resource]++
		}
		// Without a culprit, nobody does more, or only the victim itself.
		itself := []int{-1, victim}[d.random.IntN(2)]
		nobody, _ := d.draw(t, resource, victim, itself)
		if nobody != "" {
			wrong++
		}
		t.Logf("draw %d: %s on %s by %s: %q stands first; without a culprit (the victim itself does more: %v) %q", done, resource, d.name(victim),
			d.name(culprit), named, itself >= 0, nobody)
	}
	sum := first["io"] + first["cpu"] + first["memory"]
	result := fmt.Sprintf("the culprit stands first in %d of %d draws (%v of %v); %d of %d draws without a culprit name one", sum, draws, first, valid,
		wrong, draws)
	t.Log(result)
	if sum*20 < draws*18 || wrong > max(1, draws/20) {
		t.Errorf("%s; want 18 of 20, and at most 1 of 20", result)
	}
}

func (d *drawing) name(i int) string { return fmt.Sprint("c", i) }

func (d *drawing) dir(i int) string { return filepath.Join("/run/blame", d.name(i)) }

// set sets the load of a container. Its threads follow within 0.5 s.
func (d *drawing) set(t *testing.T, i int, l load) {
	t.Helper()
	text := fmt.Sprintln(l.threads, l.milliseconds, l.operations, l.memory, l.blocks)
	must(t, os.WriteFile(filepath.Join(d.dir(i), "load"), []byte(text), 0o600))
}

// busy returns the load of a bystander: 1 to 2% of a CPU, 2 or 4 reads a second, and some page cache.
func (d *drawing) busy() load {
	return load{threads: 1, milliseconds: 4 + d.random.IntN(9), operations: 1 + d.random.IntN(2), blocks: d.random.IntN(4)}
}

// loads sets the load of the victim, and the additional load of the culprit.
func (d *drawing) loads(resource string) {
	switch resource {
	case "io":
		d.own, d.loud = load{threads: 1, milliseconds: 10, operations: 5}, load{threads: 8, operations: 1000}
	case "cpu":
		d.own, d.loud = load{threads: 1, milliseconds: 400, operations: 1}, load{threads: 8, milliseconds: 500}
	case "memory":
		d.own, d.loud = load{threads: 1, milliseconds: 10, operations: 1, blocks: 300}, load{threads: 1, milliseconds: 10, operations: 1, memory: 72}
	}
}

// draw runs a plugin that has recorded nothing, lets container `who` use a resource for a while, and returns the
// container that the plugin names first for the victim. `who` is the culprit, the victim itself, or -1 for none.
// `suffered` is true if the part of the time in which the victim waited for the resource has more than doubled, and has
// grown by more than 10 percentage points.
func (d *drawing) draw(t *testing.T, resource string, victim, who int) (first string, suffered bool) {
	t.Helper()
	d.loads(resource)
	mustWrite(t, allPods+"/memory.max", "max")
	dropCache(t, "/dev/vda")
	d.plugin.end(t, syscall.SIGTERM)
	d.plugin = start(t, "qos-nri-plugin", "run", "--nri-socket", nriSocket, "--history-interval", "1s")
	d.waitRegistered(t)

	before := d.pass(t, resource, quietTime, victim, -1)
	if resource == "memory" {
		used, err := strconv.Atoi(strings.TrimSpace(mustRead(t, allPods+"/memory.current")))
		must(t, err)
		mustWrite(t, allPods+"/memory.max", strconv.Itoa(used+16<<20))
	}
	during := d.pass(t, resource, loudTime, victim, who)
	d.pass(t, resource, afterTime, victim, -1)

	report, err := d.api(t).Blame(requestContext(t), &qos.BlameRequest{
		Namespace: d.pod.config.GetMetadata().GetNamespace(), Pod: d.pod.config.GetMetadata().GetName(), Container: d.name(victim),
	})
	must(t, err)
	for _, f := range report.GetSufferers()[0].GetFindings() {
		t.Logf("%s", f)
		if c := f.GetCulprits(); len(c) > 0 && first == "" {
			first = c[0].GetContainer()
		}
	}
	return first, during > before+0.1 && during > 2*before
}

// pass lets the containers work for a while, and returns the part of the time in which the victim waited for the resource. The load of the
// bystanders changes each second.
func (d *drawing) pass(t *testing.T, resource string, how time.Duration, victim, who int) (waited float64) {
	t.Helper()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	begin, before := time.Now(), d.waited(t, resource, victim)
	for time.Since(begin) < how {
		for i := range blameContainers {
			l := d.busy()
			if i == victim {
				l = d.own
			}
			if i == who {
				l = load{
					threads: max(l.threads, d.loud.threads), milliseconds: max(l.milliseconds, d.loud.milliseconds),
					operations: max(l.operations, d.loud.operations), memory: d.loud.memory, blocks: l.blocks,
				}
			}
			d.set(t, i, l)
		}
		<-tick.C
	}
	waited = (d.waited(t, resource, victim) - before) / time.Since(begin).Seconds()
	t.Logf("%s waited for %s %.0f%% of %s", d.name(victim), resource, 100*waited, time.Since(begin).Round(time.Second/10))
	return waited
}

// waited returns the time for which a container has waited for a resource, in seconds.
func (d *drawing) waited(t *testing.T, resource string, i int) float64 {
	t.Helper()
	data := mustRead(t, filepath.Join(d.ioCgroup(d.containers[i].cgroup()), resource+".pressure"))
	reading := classes.Reading{}
	cgroup.Pressure(map[string]string{"some": resource})(reading, []byte(data))
	return reading[classes.Series{Measure: resource}]
}

// dropCache removes the pages of a disk from the page cache.
func dropCache(t *testing.T, disk string) {
	t.Helper()
	file, err := os.Open(disk)
	must(t, err)
	defer file.Close()
	must(t, unix.IoctlSetInt(int(file.Fd()), unix.BLKFLSBUF, 0))
}
