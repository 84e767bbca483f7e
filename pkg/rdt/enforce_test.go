// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// container is a simulated container. It implements Threads, and calls the function `listed` each time that the backend
// lists the threads.
type container struct {
	fs   *sim.FS
	tids []int
	// listed is called before each listing, with the number of earlier listings.
	listed func(c *container, n int)
	n      int
}

func (c *container) Threads(classes.Holder) ([]int, error) {
	tids := slices.Clone(c.tids)
	if c.listed != nil {
		c.listed(c, c.n)
	}
	c.n++
	return tids, nil
}

func (c *container) fork(parent, child int) {
	c.fs.Fork(parent, child)
	c.tids = append(c.tids, child)
}

func (c *container) groups() map[int]string {
	groups := map[int]string{}
	for _, tid := range c.tids {
		groups[tid] = c.fs.GroupOf(tid)
	}
	return groups
}

// newContainer starts a container with two threads in a group, on a machine with classes gold and bronze.
func newContainer(t testing.TB, spec sim.Spec, group string) (*container, *Backend) {
	t.Helper()
	c := &container{fs: sim.New(spec)}
	b := newBackend(c.fs, c)
	apply(t, b, twoPartitions)
	for _, tid := range []int{10, 11} {
		c.fs.AddTask(tid, group)
		c.tids = append(c.tids, tid)
	}
	return c, b
}

var target = classes.Holder{ID: "c", PID: 10}

func kernels() map[string]sim.Spec {
	old := sim.IntelSpec()
	old.NoTaskFile = true
	return map[string]sim.Spec{"with cpu_resctrl_groups": sim.IntelSpec(), "without cpu_resctrl_groups": old}
}

func TestAdjustNamesTheGroupOfTheClassAndRefusesUnknownNames(t *testing.T) {
	_, b := newContainer(t, sim.IntelSpec(), "")
	for class, want := range map[string]string{"gold": "qos-gold", "": ""} {
		if got, err := b.Adjust(classes.Holder{}, "", class); err != nil || got[classes.Setting{Name: classes.SettingClosID}] != want || len(got.Unified()) > 0 {
			t.Errorf("for class %q, Adjust returns %+v, %v", class, got, err)
		}
	}
	// Only class files call the class "" system/default.
	_, err := b.Adjust(classes.Holder{}, "", "system/default")
	if !errors.Is(err, ErrNotOffered) || !strings.Contains(err.Error(), "there are bronze, gold") {
		t.Errorf("got %v", err)
	}
}

func TestEnforceAtTheStartListsNoThreadsIfTheFirstProcessIsInItsGroup(t *testing.T) {
	for name, spec := range kernels() {
		t.Run(name, func(t *testing.T) {
			c, b := newContainer(t, spec, "qos-gold")
			c.listed = func(*container, int) { t.Error("the threads are listed, although the first process is in the group") }
			must(t, b.Enforce(t.Context(), starting(10), "gold", "gold"))
		})
	}
}

// starting returns a container that is about to start. If `pid` is 0, the PID is unknown.
func starting(pid int) classes.Holder { return classes.Holder{ID: "c", PID: pid, Starting: true} }

func TestEnforceAtTheStartMovesAContainerThatTheRuntimePutElsewhere(t *testing.T) {
	for name, spec := range kernels() {
		for _, pid := range []int{10, 0} {
			for _, before := range []string{"", "qos-bronze"} {
				t.Run(fmt.Sprintf("%s, PID %d, from %q", name, pid, before), func(t *testing.T) {
					c, b := newContainer(t, spec, before)
					must(t, b.Enforce(t.Context(), starting(pid), "gold", "gold"))
					if diff := cmp.Diff(map[int]string{10: "qos-gold", 11: "qos-gold"}, c.groups()); diff != "" {
						t.Error(diff)
					}
				})
			}
		}
	}
}

func TestEnforceAtTheStartFailsWithoutTheFirstProcess(t *testing.T) {
	for name, test := range map[string]struct {
		pid  int
		tids []int
	}{
		"the first process is not in the cgroup":            {pid: 12, tids: []int{10, 11}},
		"the PID is unknown, and the cgroup has no process": {},
	} {
		t.Run(name, func(t *testing.T) {
			c, b := newContainer(t, sim.IntelSpec(), "")
			c.tids = test.tids
			if err := b.Enforce(t.Context(), starting(test.pid), "gold", "gold"); err == nil || !strings.Contains(err.Error(), "first process") {
				t.Errorf("the error is %v, want one about the first process", err)
			}
			if got := c.fs.GroupOf(10); got != "" {
				t.Errorf("another process was left in %q", got)
			}
		})
	}
}

func TestEnforceMovesAllThreadsAndTheirForks(t *testing.T) {
	for name, spec := range kernels() {
		for _, to := range []string{"bronze", ""} {
			t.Run(fmt.Sprintf("%s, to %q", name, to), func(t *testing.T) {
				c, b := newContainer(t, spec, "qos-gold")
				c.listed = func(c *container, n int) {
					if n < 5 {
						c.fork(10, 100+n) // the new thread is not in this listing
					}
					if n == 1 {
						c.fs.Exit(11) // the ended thread is still in this listing
					}
				}

				must(t, b.Enforce(t.Context(), target, "gold", to))
				c.tids = slices.DeleteFunc(c.tids, func(tid int) bool { return tid == 11 })
				for tid, group := range c.groups() {
					if group != groups.Of(to) {
						t.Errorf("thread %d is in %q", tid, group)
					}
				}

				got, err := b.Observe(t.Context(), target, "")
				if got.Class != to || !got.Known || err != nil {
					t.Errorf("observed %+v, %v", got, err)
				}
			})
		}
	}
}

// TestEnforceMovesThreadsBackWhenItFails lets one of the first four moves of a thread fail.
func TestEnforceMovesThreadsBackWhenItFails(t *testing.T) {
	for _, failing := range []int{1, 2, 3, 4} {
		c, b := newContainer(t, sim.IntelSpec(), "qos-gold")
		c.fs.AddTask(12, "qos-bronze") // this thread is already in the new group
		c.fs.AddTask(13, "")           // this thread is in neither the old nor the new group
		c.tids = append(c.tids, 12, 13)
		before := c.groups()
		c.listed = func(c *container, n int) {
			switch n {
			case 1: // the first pass; only the second one finds thread 14
				c.fs.AddTask(14, "qos-gold")
				c.tids = append(c.tids, 14)
				before[14] = "qos-gold"
			case 2: // the second pass or, if a move of the first pass has failed, the first pass of the rollback
				c.fork(11, 15)          // thread 15 begins in the group in which thread 11 is now
				before[15] = "qos-gold" // the rollback moves a new thread to the old group
			}
		}
		c.fs.Inject(func(call sim.Call) *sim.Fault {
			if call.N == failing {
				return &sim.Fault{Errno: syscall.EPERM, Status: "No permission to move task"}
			}
			return nil
		})
		err := b.Enforce(t.Context(), target, "gold", "bronze")
		if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "No permission to move task") {
			t.Errorf("move %d fails: the error is %v, want EPERM with the text of the kernel", failing, err)
		}
		if diff := cmp.Diff(before, c.groups()); diff != "" {
			t.Errorf("move %d fails: groups of the threads (-before +after):\n%s", failing, diff)
		}
	}
}

func TestAMoveWhoseContextEndsIsRolledBack(t *testing.T) {
	c, b := newContainer(t, sim.IntelSpec(), "qos-gold")
	ctx, cancel := context.WithCancel(t.Context())
	// The first listing is for the present groups. After the second one, both threads are moved. The context ends in the third one.
	c.listed = func(_ *container, n int) {
		if n == 2 {
			cancel()
		}
	}

	before := c.groups()
	if err := b.Enforce(ctx, target, "gold", "bronze"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want context.Canceled", err)
	}

	if diff := cmp.Diff(before, c.groups()); diff != "" {
		t.Error(diff)
	}
}

func TestEnforceFailsWithoutTheGroupOfTheClass(t *testing.T) {
	_, b := newContainer(t, sim.IntelSpec(), "")
	if err := b.Enforce(t.Context(), target, "", "tin"); !errors.Is(err, ErrNotOffered) {
		t.Errorf("the error is %v, want ErrNotOffered", err)
	}
	// Before the first configuration, no class has a group.
	if err := newBackend(sim.New(sim.IntelSpec()), nil).Enforce(t.Context(), target, "", "tin"); err == nil {
		t.Error("enforced without a configuration")
	}
}

// TestObserveDistinguishesClassesFromForeignGroups also observes a process that has ended, 99, and an unknown PID, 0.
func TestObserveDistinguishesClassesFromForeignGroups(t *testing.T) {
	for name, spec := range kernels() {
		t.Run(name, func(t *testing.T) {
			c, b := newContainer(t, spec, "qos-gold")
			must(t, c.fs.Mkdir(sim.MountPoint+"/theirs"))
			must(t, c.fs.Mkdir(sim.MountPoint+"/qos-gold/mon_groups/m"))
			c.fs.AddTask(20, "theirs")
			c.fs.AddTask(21, "")
			c.fs.AddTask(22, "qos-gold/mon_groups/m")
			for pid, want := range map[int]classes.Observation{
				10: {Class: "gold", Known: true}, 20: {Foreign: "resctrl group theirs"}, 21: {Known: true}, 22: {Class: "gold", Known: true}, 99: {}, 0: {},
			} {
				got, err := b.Observe(t.Context(), classes.Holder{PID: pid}, "")
				if got != want || errors.Is(err, classes.ErrEnded) != (pid == 99) || pid != 99 && err != nil {
					t.Errorf("process %d: %+v, %v; want %+v", pid, got, err, want)
				}
			}
		})
	}
}
