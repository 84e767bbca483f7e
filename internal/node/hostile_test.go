// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// hostileNames returns invalid class names. Some of them would lead out of the directory of the class's resctrl group.
func hostileNames() []string {
	return []string{
		"../theirs", "/../theirs", "..", ".", "/", "a/b", "gold/../../theirs", "gold/mon_groups/m", "\x00", "gold\nx", " gold", "-gold",
		"%2e%2e", "..\\theirs", strings.Repeat("../", 50) + "etc", strings.Repeat("x", 1<<20), "schemata", "info", "mon_groups", "$(reboot)", "ü",
	}
}

// watchedHost records the paths of all changes.
type watchedHost struct {
	*sim.Machine
	mu      *sync.Mutex // guards changed
	changed *[]string
}

func (h watchedHost) record(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*h.changed = append(*h.changed, path)
}

func (h watchedHost) WriteFile(path string, data []byte) error {
	h.record(path)
	return h.Machine.WriteFile(path, data)
}

func (h watchedHost) Mkdir(path string) error {
	h.record(path)
	return h.Machine.Mkdir(path)
}

func (h watchedHost) Remove(path string) error {
	h.record(path)
	return h.Machine.Remove(path)
}

// watchedNode is a node with the backend of resctrl, on a machine that has a group of another program.
type watchedNode struct {
	*fixture
	host watchedHost
}

const groupFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  defaultClass: bronze
  rdt: {partitions: {p: {l3Allocation: "100%", classes: {gold: {l3Allocation: "50%"}, bronze: {}}}}}
`

func newWatchedNode(t *testing.T) *watchedNode {
	t.Helper()
	spec := resctrl.IntelSpec()
	host := watchedHost{sim.New(sim.Options{RDT: &spec}), &sync.Mutex{}, &[]string{}}
	if err := host.Machine.Mkdir(resctrl.MountPoint + "/theirs"); err != nil {
		t.Fatal(err)
	}
	g := &watchedNode{newFixtureOf(t, rdtOn(t, host)), host}
	g.restart(t)
	g.mustConfigure(t, groupFiles)
	return g
}

// wantInside fails the test if anything but the groups of the classes and the tasks file of the root group was changed.
func (g *watchedNode) wantInside(t *testing.T) {
	t.Helper()
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	for _, name := range *g.host.changed {
		rest, inside := strings.CutPrefix(path.Clean(name), resctrl.MountPoint+"/")
		group, _, _ := strings.Cut(rest, "/")
		if ours := group == "qos-gold" || group == "qos-bronze" || rest == "tasks"; !inside || !ours {
			t.Errorf("%.200q was changed", name)
		}
	}
	*g.host.changed = nil
}

// addContainer adds a container to the machine, in the root group.
func (g *watchedNode) addContainer(t *testing.T, id string) int {
	t.Helper()
	g.host.Cgroups().AddCgroup("/kubepods/" + id)
	pid := 100
	g.host.Cgroups().AddProcess("/kubepods/"+id, pid)
	g.host.Resctrl().AddTask(pid, "")
	return pid
}

// TestNoRequestChangesAnythingOutsideTheGroupsOfClasses requests hostile class names by each annotation of a pod and of a
// container that can request a class.
func TestNoRequestChangesAnythingOutsideTheGroupsOfClasses(t *testing.T) {
	for _, name := range hostileNames() {
		t.Run(fmt.Sprintf("%.20q", name), func(t *testing.T) {
			g := newWatchedNode(t)
			for key, value := range map[string]string{
				"qos.noderesource.dev/pod":                   "rdt=" + name,
				"container.qos.noderesource.dev/main":        "rdt=" + name,
				"rdt.resources.kubernetes.io/default":        name,
				"rdt.resources.kubernetes.io/container.main": name,
			} {
				p := pod("a", map[string]string{key: value})
				if _, _, err := g.CreateContainer(in(p, container("c1"))); err == nil {
					g.Stop("c1")
					t.Errorf("%s: the request was admitted", key)
				} else if len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x00") {
					t.Errorf("%s: the refusal is %.1000q, want one line of at most 1000 bytes", key, err)
				}
			}

			c := container("c1")
			for key, value := range map[string]string{"allocated.qos.noderesource.dev/rdt.x": "rdt=" + name, "io.kubernetes.cri.rdt-class": name} {
				c.ContainerAnnotations = map[string]string{key: value}
				if _, _, err := g.CreateContainer(in(pod("a", nil), c)); err == nil {
					g.Stop("c1")
					t.Errorf("%s: the request was admitted", key)
				}
			}

			g.wantInside(t)
		})
	}
}

// TestNoRecordOrCheckpointChangesAnythingOutsideTheGroupsOfClasses uses records that another plugin may have written,
// and checkpoints that another program has changed.
func TestNoRecordOrCheckpointChangesAnythingOutsideTheGroupsOfClasses(t *testing.T) {
	for _, name := range hostileNames() {
		for _, by := range []string{"record", "checkpoint"} {
			t.Run(fmt.Sprintf("%s %.20q", by, name), func(t *testing.T) {
				g := newWatchedNode(t)
				assigned := []classes.Assignment{{Resource: "k8s.io/rdt", Class: name, Source: classes.SourceUpdate}}
				c := classes.Holder{ID: "c1", Container: "main", CgroupsPath: "/kubepods/c1", PID: g.addContainer(t, "c1")}
				if by == "record" {
					c.ContainerAnnotations = map[string]string{state.RecordAnnotation: marshal(t, assigned)}
				} else {
					content := marshal(t, map[string]any{"bootID": "boot", "changes": map[string]any{"c1": assigned}})
					if err := os.WriteFile(g.path, []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}

				g.restart(t)
				g.mustConfigure(t, groupFiles)
				g.wantInside(t)
				g.Synchronize(nil, []state.Existing{running(pod("a", nil), c)})
				g.Reconcile(t.Context())
				g.wantInside(t)
				if group := g.host.Resctrl().GroupOf(c.PID); group != "" && group != "qos-bronze" {
					t.Errorf("the container is in group %q", group)
				}

				if got := g.Assignments(); len(got) != 1 || got[0].Containers[0].Assignments[0].Class == name {
					t.Errorf("reported: %.300v", got)
				}
			})
		}
	}
}

// TestNoProcessOfAnotherCgroupIsMovedIntoTheClassOfAContainer uses a runtime that reports, as a container's cgroup, one that has
// processes of others or may have them.
func TestNoProcessOfAnotherCgroupIsMovedIntoTheClassOfAContainer(t *testing.T) {
	for _, path := range []string{"/", ".", "-.slice", "/kubepods", "kubepods/./", "/kubepods/other"} {
		t.Run(fmt.Sprintf("%q", path), func(t *testing.T) {
			const sshd, other = 7, 8
			g := newWatchedNode(t)
			for pid, group := range map[int]string{sshd: "/system.slice/sshd", other: "/kubepods/other"} {
				g.host.Cgroups().AddCgroup(group)
				g.host.Cgroups().AddProcess(group, pid)
				g.host.Resctrl().AddTask(pid, "")
			}

			c := classes.Holder{ID: "c1", Container: "main", CgroupsPath: path, PID: g.addContainer(t, "c1")}

			g.Synchronize(nil, []state.Existing{running(pod("a", nil), c)})
			g.Reconcile(t.Context())
			err := g.Update(t.Context(), ownerA, map[string]string{"k8s.io/rdt": "gold"})

			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("path from the runtime: %q may be shared with others", path)) {
				t.Errorf("the update returned %v, want a refusal of the path", err)
			}

			for _, pid := range []int{sshd, other} {
				if group := g.host.Resctrl().GroupOf(pid); group != "" {
					t.Errorf("process %d of another cgroup is in group %q", pid, group)
				}
			}
		})
	}
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestLargeAnnotationsAreNotKept measures the memory that 60 pods with annotations of 1 MiB take. The API server would refuse
// these pods, but a runtime without a kubelet may still run them.
func TestLargeAnnotationsAreNotKept(t *testing.T) {
	const size, pods, most = 1 << 20, 60, 2 << 20
	for _, test := range []struct {
		name  string
		notes func(large string) map[string]string
	}{
		{"an annotation of another program", func(large string) map[string]string {
			return map[string]string{"other.example/x": large, "qos.noderesource.dev/pod": "test.example/disk=slow"}
		}},
		{"spaces before a request", func(large string) map[string]string {
			return map[string]string{"qos.noderesource.dev/pod": strings.Repeat(" ", len(large)) + "test.example/disk=slow"}
		}},
		{"a request with a long class name", func(large string) map[string]string {
			return map[string]string{"qos.noderesource.dev/pod": "test.example/disk=" + large}
		}},
		{"a request with many pairs", func(large string) map[string]string {
			return map[string]string{"qos.noderesource.dev/pod": strings.Repeat("test.example/disk=slow,", len(large)/23)}
		}},
		{"a long key", func(large string) map[string]string {
			return map[string]string{"container.qos.noderesource.dev/" + large: "test.example/disk=slow"}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			before := heap()
			for i := range pods {
				large := strings.Repeat(string(rune('a'+i%26)), size)
				p := pod(fmt.Sprint("p", i), test.notes(large))
				c := container(fmt.Sprint("c", i))
				_, err := f.run(t, p, c)
				if err != nil && (len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n")) {
					t.Fatalf("the refusal is %.1000q, want one line of at most 1000 bytes", err)
				}
				if i == 0 {
					before = heap() // the first pod causes allocations that are made only once
				}
			}

			if grown := heap() - before; grown > most {
				t.Errorf("the node keeps %d KiB of memory for %d pods, want at most %d KiB", grown>>10, pods, most>>10)
			}

			runtime.KeepAlive(f)
		})
	}
}

func heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
