// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestDriftIsRepaired damages resctrl on a machine that has managed groups and a group of another program. The
// managed group qos-tin belongs to a draining class.
func TestDriftIsRepaired(t *testing.T) {
	const point = sim.MountPoint
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, fs *sim.FS)
		want   []string
		// lost are groups that cannot be restored.
		lost []string
	}{
		{"nothing", func(*testing.T, *sim.FS) {}, nil, nil},
		{"a group is removed", func(t *testing.T, fs *sim.FS) { must(t, fs.Remove(point+"/qos-gold")) },
			[]string{"resctrl group qos-gold was removed"}, nil},
		{"the group of a class that drains is removed", func(t *testing.T, fs *sim.FS) { must(t, fs.Remove(point+"/qos-tin")) },
			[]string{"resctrl group qos-tin was removed"}, nil},
		{"a group is rewritten", func(t *testing.T, fs *sim.FS) {
			must(t, fs.WriteFile(point+"/qos-gold/schemata", []byte("L3:0=7ff\n")))
		}, []string{"resctrl group qos-gold was rewritten: L3 0 is 7ff instead of ff"}, nil},
		{"groups are removed and rewritten", func(t *testing.T, fs *sim.FS) {
			must(t, fs.Remove(point+"/qos-gold"), fs.WriteFile(point+"/qos-tin/schemata", []byte("MB:1=20\n")))
		}, []string{"resctrl group qos-gold was removed", "resctrl group qos-tin was rewritten: MB 1 is 20 instead of 50"}, nil},
		{"resctrl is unmounted", func(_ *testing.T, fs *sim.FS) { fs.Unmount() }, []string{"resctrl was unmounted"}, []string{"theirs"}},
		{"resctrl is mounted again", func(t *testing.T, fs *sim.FS) {
			fs.Unmount()
			must(t, fs.Mount("resctrl", point, "resctrl", ""))
		}, []string{"resctrl group qos-bronze was removed", "resctrl group qos-gold was removed", "resctrl group qos-tin was removed"}, []string{"theirs"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			fs := sim.New(sim.IntelSpec())
			must(t, fs.Mkdir(point+"/theirs"), fs.WriteFile(point+"/theirs/schemata", []byte("L3:0=3\n")))
			b := newBackend(fs, nil)
			apply(t, b, strings.Replace(twoPartitions, "{bronze:", "{tin: {}, bronze:", 1))
			fs.AddTask(7, "qos-tin")
			apply(t, b, twoPartitions)
			want := schemataIn(t, fs)
			for _, group := range test.lost {
				delete(want, group)
			}

			test.damage(t, fs)
			fs.Inject(nil) // counts the calls from 0
			drift, err := b.Repair(t.Context())
			if diff := cmp.Diff(test.want, drift.Found); err != nil || diff != "" {
				t.Errorf("found (-want +got):\n%s%v", diff, err)
			}

			if diff := cmp.Diff(want, schemataIn(t, fs)); diff != "" {
				t.Errorf("schemata (-want +got):\n%s", diff)
			}

			if calls := fs.Calls(); test.want == nil && calls != 0 {
				t.Errorf("the repair wrote %d times without drift", calls)
			}

			wantNoDrift(t, b)
		})
	}
}

func TestTheConfigurationIsAppliedUnderOtherMountOptions(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	b := newBackend(fs, nil)
	apply(t, b, twoPartitions)
	fs.Unmount()
	must(t, fs.Mount("resctrl", sim.MountPoint, "resctrl", "cdp"))
	drift, err := b.Repair(t.Context())
	if err != nil || len(drift.Found) != 1 || !strings.HasPrefix(drift.Found[0], "resctrl was remounted: at /sys/fs/resctrl with ") {
		t.Errorf("the drift is %v with the error %v, want only the remount", drift.Found, err)
	}
	if got := dump(fs, "schemata")["qos-gold"]; !strings.Contains(got, "L3CODE:0=000ff") {
		t.Errorf("gold has the schemata %q, want the code mask 000ff", got)
	}
}

// TestAFailedRepairIsAnError damages resctrl in a way that Repair cannot repair. When the damage is undone, Repair succeeds.
func TestAFailedRepairIsAnError(t *testing.T) {
	for _, test := range []struct {
		name   string
		mount  bool // the plugin may mount resctrl
		damage func(t *testing.T, fs *sim.FS)
		reason string
		errno  error
		// repair undoes the damage.
		repair func(t *testing.T, fs *sim.FS)
	}{
		{"unmounted, and not ours to mount", false, func(_ *testing.T, fs *sim.FS) { fs.Unmount() }, string(resctrl.NotMounted), nil,
			func(t *testing.T, fs *sim.FS) { must(t, fs.Mount("resctrl", sim.MountPoint, "resctrl", "")) }},
		{"mounted with half of the CLOSIDs, of which others have taken all", true, func(t *testing.T, fs *sim.FS) {
			fs.Unmount()
			must(t, fs.Mount("resctrl", sim.MountPoint, "resctrl", "cdp"))
			for _, group := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
				if fs.Mkdir(sim.MountPoint+"/"+group) != nil {
					return
				}
			}
		}, "", ErrNoCLOSID, func(t *testing.T, fs *sim.FS) {
			must(t, fs.Remove(sim.MountPoint+"/a"), fs.Remove(sim.MountPoint+"/b"))
		}},
		{"refused by the kernel", true, func(t *testing.T, fs *sim.FS) {
			must(t, fs.Remove(sim.MountPoint+"/qos-gold"))
			refuse(fs, syscall.ENOSPC, func(c sim.Call) bool { return c.Op == "mkdir" })
		}, "", syscall.ENOSPC, func(_ *testing.T, fs *sim.FS) { fs.Inject(nil) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			fs := sim.New(sim.IntelSpec())
			b := New(Options{FS: fs, MountResctrl: test.mount})
			apply(t, b, twoPartitions)
			want := schemataIn(t, fs)["qos-gold"]
			test.damage(t, fs)
			_, err := b.Repair(t.Context())
			var unavailable *classes.Unavailable
			if err == nil || test.errno != nil && !errors.Is(err, test.errno) ||
				test.reason != "" && (!errors.As(err, &unavailable) || unavailable.Reason != test.reason) {
				t.Errorf("got %v", err)
			}

			if conditions := b.Status().Conditions; conditions[0].Type != qos.ConditionConfigurationApplied || conditions[0].Healthy {
				t.Errorf("the conditions are %v, want ConfigurationApplied first and not healthy", conditions)
			}

			test.repair(t, fs)
			repair(t, b)

			// The case with ErrNoCLOSID mounts with cdp, so its lines have other names.
			if got := schemataIn(t, fs)["qos-gold"]; got != want && !errors.Is(test.errno, ErrNoCLOSID) {
				t.Errorf("gold has %q after the repair, want %q", got, want)
			}
		})
	}
}

func TestNothingIsRepairedWithoutManagedGroups(t *testing.T) {
	for name, do := range map[string]func(*Backend) error{
		"before anything was applied": func(*Backend) error { return nil },
		"after all was withdrawn": func(b *Backend) error {
			return errors.Join(b.Apply(t.Context(), parse(t, others)), b.Withdraw(t.Context()), b.Release(t.Context(), nobody))
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := sim.New(sim.IntelSpec())
			b := newBackend(fs, nil)
			must(t, do(b), fs.WriteFile(sim.MountPoint+"/schemata", []byte("L3:0=ff\n"))) // as another program does
			fs.Unmount()
			fs.Inject(nil) // counts the calls from 0
			if drift, err := b.Repair(t.Context()); err != nil || len(drift.Found) > 0 || fs.Calls() > 0 {
				t.Errorf("the drift is %v, with the error %v and %d writes, want none", drift, err, fs.Calls())
			}
		})
	}
}

// crowd is a set of containers, by name.
type crowd map[string]*container

func (c crowd) Threads(target classes.Holder) ([]int, error) {
	if c[target.Container] == nil {
		return nil, errors.New("no such cgroup")
	}
	return c[target.Container].Threads(target)
}

// TestThreadsOutsideTheClassOfTheirContainerAreMoved has three containers of class gold. One of the two threads of b is in
// another group. A fourth container has no cgroup.
func TestThreadsOutsideTheClassOfTheirContainerAreMoved(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	everybody := crowd{}
	b := newBackend(fs, everybody)
	apply(t, b, twoPartitions)
	var targets []classes.Holder
	for i, group := range []string{"qos-gold", "qos-bronze", "qos-gold"} {
		name := string(rune('a' + i))
		fs.AddTask(10*i+10, "qos-gold")
		fs.AddTask(10*i+11, group)
		everybody[name] = &container{fs: fs, tids: []int{10*i + 10, 10*i + 11}}
		targets = append(targets, classes.Holder{ID: "id-" + name, Container: name})
	}

	// Thread 21, which is about to be moved, forks before the second listing.
	everybody["b"].listed = func(c *container, n int) {
		if n == 1 {
			c.fork(21, 29)
		}
	}

	targets = append(targets, classes.Holder{ID: "id-gone", Container: "gone"})
	moved, err := b.MoveThreads(t.Context(), "gold", targets)
	if diff := cmp.Diff([]string{"id-b"}, moved); diff != "" || err == nil || !strings.Contains(err.Error(), "no such cgroup") {
		t.Errorf("moved (-want +got):\n%s%v", diff, err)
	}

	for name, c := range everybody {
		for tid, group := range c.groups() {
			if group != "qos-gold" {
				t.Errorf("thread %d of %s is in %q", tid, name, group)
			}
		}
	}

	fs.Inject(nil) // counts the calls from 0
	if moved, err := b.MoveThreads(t.Context(), "gold", targets[:3]); len(moved) > 0 || err != nil || fs.Calls() > 0 {
		t.Errorf("a second repair finds %v, %v, and writes %d times", moved, err, fs.Calls())
	}
}

// TestOnlyNewThreadsAreCheckedBetweenFullChecks puts threads of a container outside of its class. The threads that the last call has listed
// are known. MoveNewThreads does not check them, but if it finds a new thread outside, it moves all threads of the container.
func TestOnlyNewThreadsAreCheckedBetweenFullChecks(t *testing.T) {
	for _, threads := range []int{2, fewThreads + 2} { // for more than fewThreads, the backend reads the tasks of whole groups
		fs := sim.New(sim.IntelSpec())
		c := &container{fs: fs}
		b := newBackend(fs, c)
		apply(t, b, twoPartitions)
		targets := []classes.Holder{{ID: "id", Container: "c"}}
		add := func(group string) {
			c.tids = append(c.tids, 10+len(c.tids))
			fs.AddTask(c.tids[len(c.tids)-1], group)
		}
		for range threads {
			add("qos-gold")
		}
		// From here on, these threads are known.
		if moved, err := b.MoveNewThreads(t.Context(), "gold", targets); len(moved) > 0 || err != nil {
			t.Errorf("all threads are in their group, and MoveNewThreads moves %v, %v", moved, err)
		}

		const known = 10
		putKnownOutside := func() { must(t, fs.WriteFile(sim.MountPoint+"/qos-bronze/tasks", []byte("10"))) }
		type move func(context.Context, string, []classes.Holder) ([]string, error)
		wantMove := func(when string, call move, moved []string, group string) {
			t.Helper()
			got, err := call(t.Context(), "gold", targets)
			if diff := cmp.Diff(moved, got); diff != "" || err != nil {
				t.Errorf("%s, of %d threads, moved (-want +got):\n%s%v", when, threads, diff, err)
			}
			if groups := c.groups(); groups[known] != group || groups[known+threads] != "qos-gold" {
				t.Errorf("%s, of %d threads, the groups are %v, want the known thread in %s, and the new ones in qos-gold", when, threads, groups, group)
			}
		}

		putKnownOutside()
		for range threads {
			add("")
		}
		wantMove("with new threads outside, a move includes all threads of the container", b.MoveNewThreads, []string{"id"}, "qos-gold")
		putKnownOutside()
		wantMove("with only a known thread outside, it stays", b.MoveNewThreads, nil, "qos-bronze")
		wantMove("a full check moves a known thread", b.MoveThreads, []string{"id"}, "qos-gold")
		must(t, b.Release(t.Context(), nobody))
		putKnownOutside()
		wantMove("after no container had the class, its threads are new again", b.MoveNewThreads, []string{"id"}, "qos-gold")
	}
}

func TestAGroupIsReleasedWhenOnlyZombiesAreLeft(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	b := newBackend(fs, nil)
	apply(t, b, strings.Replace(twoPartitions, "{bronze:", "{tin: {}, bronze:", 1))
	fs.AddTask(7, "qos-tin")
	fs.AddTask(8, "qos-tin")
	apply(t, b, twoPartitions)
	fs.End(7) // is a zombie now, and 8 is alive
	must(t, b.Release(t.Context(), nobody))
	if _, there := schemataIn(t, fs)["qos-tin"]; !there {
		t.Error("the group was removed, although one of its two processes is alive")
	}

	fs.End(8)
	must(t, b.Release(t.Context(), nobody))
	if _, there := schemataIn(t, fs)["qos-tin"]; there {
		t.Error("the group was kept, although it has only zombies")
	}
}

func TestOnlyThreadsInManagedGroupsAreMovedToTheSystemDefault(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	must(t, fs.Mkdir(sim.MountPoint+"/theirs"))
	c := &container{fs: fs, tids: []int{10, 11, 12}}
	b := newBackend(fs, c)
	apply(t, b, twoPartitions)
	for tid, group := range map[int]string{10: "", 11: "qos-gold", 12: "theirs"} {
		fs.AddTask(tid, group)
	}

	moved, err := b.MoveThreads(t.Context(), classes.SystemDefault, []classes.Holder{{ID: "id", Container: "c"}})
	if err != nil || len(moved) != 1 {
		t.Errorf("MoveThreads returns %v, %v, want one container", moved, err)
	}

	if diff := cmp.Diff(map[int]string{10: "", 11: "", 12: "theirs"}, c.groups()); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func TestTheGroupOfAClassOfAFormerRunIsRestored(t *testing.T) {
	fs := sim.New(sim.IntelSpec())
	apply(t, newBackend(fs, nil), strings.Replace(twoPartitions, "{bronze:", "{tin: {}, bronze:", 1))
	fs.AddTask(7, "qos-tin") // so the class drains in the next run
	want := schemataIn(t, fs)
	b := newBackend(fs, nil)
	apply(t, b, twoPartitions)
	must(t, fs.Remove(sim.MountPoint+"/qos-tin"))
	wantRepair(t, b, "resctrl group qos-tin was removed")
	if diff := cmp.Diff(want, schemataIn(t, fs)); diff != "" {
		t.Errorf("schemata (-want +got):\n%s", diff)
	}

	// A container can stay in a draining class.
	if _, err := b.Adjust(classes.Holder{}, "tin", "tin"); err != nil {
		t.Error(err)
	}
}
