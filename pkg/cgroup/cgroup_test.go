// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/mountinfo"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestAPathOfTheRuntimeIsConvertedToACgroup has paths, and slices and SLICE:PREFIX:NAME of systemd. They are converted as by runc.
func TestAPathOfTheRuntimeIsConvertedToACgroup(t *testing.T) {
	for _, test := range []struct{ path, want string }{
		{"/kubepods/burstable/pod1/c1", "/kubepods/burstable/pod1/c1"},
		{"default/c1", "/default/c1"},
		{"/a//b/./c/", "/a/b/c"},
		{"/with:two:colons", "/with:two:colons"},
		{"/kubepods.slice/kubepods-pod1.slice", "/kubepods.slice/kubepods-pod1.slice"},
		{"kubepods-burstable-pod1.slice", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"},
		{"kubepods-burstable-pod1.slice:cri-containerd:c1",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-c1.scope"},
		{"system.slice:crio:c1", "/system.slice/crio-c1.scope"},
		{":runc:c1", "/system.slice/runc-c1.scope"},
		{"-.slice:runc:c1", "/runc-c1.scope"},
		{"user.slice::c1", "/user.slice/c1.scope"},
		{"a.slice:runc:a-b.slice", "/a.slice/a-b.slice"},
	} {
		if got, err := Path(test.path); err != nil || got != test.want {
			t.Errorf("%q is %q, %v; want %q", test.path, got, err, test.want)
		}
	}
}

func TestMalformedPathsAndPathsOutOfTheTreeAreRefused(t *testing.T) {
	for _, path := range []string{"", "/../etc", "/kubepods/../../x", "..", "a/..", "../a.slice", "a.slice:runc:", "a:runc:c1",
		"a--b.slice:runc:c1", "-a.slice", "a-.slice:runc:c1", ".slice:runc:c1"} {
		if got, err := Path(path); !errors.Is(err, ErrBadPath) {
			t.Errorf("%q is %q, %v", path, got, err)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/a/b", "a-b.slice:p:n", "a-b.slice", "..", "-.slice:p:n", "a:..:b", ".slice:..:.."} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, path string) {
		got, err := Path(path)
		if err != nil {
			if !errors.Is(err, ErrBadPath) {
				t.Error(err)
			}
			return
		}
		if !strings.HasPrefix(got, "/") || strings.Contains(got+"/", "/../") {
			t.Errorf("%q is %q", path, got)
		}
	})
}

const dir = "/kubepods/pod1/c1"

var holder = classes.Holder{ID: "c1", Container: "main", CgroupsPath: dir}

func detect(t *testing.T, m *simcgroup.Machine) *Tree {
	t.Helper()
	tree, err := Detect(m)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func withGroup(m *simcgroup.Machine) *simcgroup.Machine {
	m.AddCgroup(dir)
	return m
}

func TestTheHierarchyWithTheIOControllerIsFound(t *testing.T) {
	for _, test := range []struct {
		name    string
		machine *simcgroup.Machine
		root    string
		version int
		unified bool
	}{
		{"v2", simcgroup.New(), "/sys/fs/cgroup", 2, true},
		{"v1", simcgroup.NewLegacy(), "/sys/fs/cgroup/blkio", 1, false},
		{"hybrid", simcgroup.NewHybrid(), "/sys/fs/cgroup/blkio", 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := detect(t, withGroup(test.machine))
			root, version, err := tree.IORoot()
			if err != nil || root != test.root || version != test.version || tree.Unified() != test.unified {
				t.Errorf("got %s, v%d, unified %v, %v", root, version, tree.Unified(), err)
			}
			got, version, err := tree.IODir(holder)
			if err != nil || got != test.root+dir || version != test.version {
				t.Errorf("got %s, v%d, %v", got, version, err)
			}
		})
	}
}

func TestAMachineWithoutCgroupsHasNoIOController(t *testing.T) {
	tree := detect(t, simcgroup.NewBare())
	if _, _, err := tree.IORoot(); !errors.Is(err, ErrNoIO) {
		t.Errorf("IORoot: %v", err)
	}
	if _, _, err := tree.IODir(holder); !errors.Is(err, ErrNoIO) {
		t.Errorf("IODir: %v", err)
	}
	if _, err := tree.Threads(holder); err == nil || !strings.Contains(err.Error(), "mount cgroup2") {
		t.Errorf("Threads: %v", err)
	}
}

func TestATreeWhoseControllersCannotBeReadHasNoIOController(t *testing.T) {
	m := simcgroup.New()
	m.Inject(simcgroup.Fault{Op: "read", File: "cgroup.controllers", Err: syscall.EIO})
	if _, _, err := detect(t, m).IORoot(); !errors.Is(err, ErrNoIO) {
		t.Errorf("the error is %v, want ErrNoIO", err)
	}
}

func TestTheMountsOfThePluginAreUsedIfThoseOfProcess1CannotBeRead(t *testing.T) {
	m := simcgroup.New()
	m.Inject(simcgroup.Fault{Op: "read", File: "mountinfo", Err: syscall.EACCES}) // only the first read, that of process 1
	if _, _, err := detect(t, m).IORoot(); err != nil {
		t.Error(err)
	}
	m.Inject(simcgroup.Fault{Op: "read", File: "mountinfo", Err: syscall.EACCES, Lasting: true}) // those of the plugin cannot be read, either
	if _, err := Detect(m); !errors.Is(err, syscall.EACCES) {
		t.Errorf("the error is %v, want syscall.EACCES", err)
	}
}

func TestATargetIsFoundByPathOrProcess(t *testing.T) {
	const root = "/sys/fs/cgroup"
	m := withGroup(simcgroup.New())
	m.AddCgroup("/kubepods.slice/kubepods-pod1.slice/cri-containerd-c1.scope")
	m.AddCgroup("/kubepods.slice/kubepods-pod2_3.slice")
	m.AddCgroup("/kubepods.slice/kubepods-pod1.slice/crio-c2.scope/container")
	m.AddCgroup("/kubepods.slice/kubepods-pod1.slice/crio-c3.scope/init.scope")
	m.AddProcess(dir, 100)
	m.AddProcess("/kubepods.slice/kubepods-pod1.slice/crio-c2.scope/container", 200)
	m.AddProcess("/kubepods.slice/kubepods-pod1.slice/crio-c3.scope/init.scope", 300)
	tree := detect(t, m)
	for _, test := range []struct {
		name   string
		target classes.Holder
		want   string
		err    error
	}{
		{"a path", classes.Holder{Container: "c", ID: "c1", CgroupsPath: dir}, dir, nil},
		{"a scope", classes.Holder{Container: "c", ID: "c1", CgroupsPath: "kubepods-pod1.slice:cri-containerd:c1"},
			"/kubepods.slice/kubepods-pod1.slice/cri-containerd-c1.scope", nil},
		{"a pod's slice", classes.Holder{PodUID: "pod1", CgroupsPath: "kubepods-pod1.slice"}, "/kubepods.slice/kubepods-pod1.slice", nil},
		{"a pod's slice with the dashes of the UID", classes.Holder{PodUID: "2-3", CgroupsPath: "kubepods-pod2_3.slice"},
			"/kubepods.slice/kubepods-pod2_3.slice", nil},
		{"a pod's path", classes.Holder{PodUID: "1", CgroupsPath: "/kubepods/pod1"}, "/kubepods/pod1", nil},
		{"the child that crun creates in a scope", classes.Holder{Container: "c", ID: "c2", CgroupsPath: "kubepods-pod1.slice:crio:c2", PID: 200},
			"/kubepods.slice/kubepods-pod1.slice/crio-c2.scope/container", nil},
		{"not a child that the container created", classes.Holder{Container: "c", ID: "c3", CgroupsPath: "kubepods-pod1.slice:crio:c3", PID: 300},
			"/kubepods.slice/kubepods-pod1.slice/crio-c3.scope", nil},
		{"by its process when there is no path", classes.Holder{Container: "c", ID: "c1", PID: 100}, dir, nil},
		{"by its process when the path does not exist", classes.Holder{Container: "c", ID: "c1", CgroupsPath: "/elsewhere/c1", PID: 100}, dir, nil},
		{"by its process when the path is relative to another cgroup", classes.Holder{Container: "c", ID: "c1", CgroupsPath: "pod1/c1", PID: 100}, dir, nil},
		{"not by a process in a cgroup that is not its own", classes.Holder{Container: "c", ID: "c9", CgroupsPath: "/elsewhere/c9", PID: 100},
			"", ErrNoCgroup},
		{"not at all when the path does not exist and the process is unknown", classes.Holder{Container: "c", ID: "c1", CgroupsPath: "/elsewhere/c1"}, "", ErrNoCgroup},
		{"not at all when neither the path nor the process exists", classes.Holder{Container: "c", ID: "c1", CgroupsPath: "/elsewhere/c1", PID: 999}, "", ErrNoCgroup},
		{"not by the sandbox's process in pod scope", classes.Holder{PodUID: "1", CgroupsPath: "/elsewhere/pod1", PID: 100}, "", ErrNoCgroup},
		{"not outside of the tree, even by its process", classes.Holder{Container: "c", ID: "c1", CgroupsPath: "/../etc/c1", PID: 100}, "", ErrBadPath},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _, err := tree.IODir(test.target)
			if test.err == nil && (err != nil || got != root+test.want) {
				t.Errorf("got %s, %v; want %s", got, err, root+test.want)
			}
			if !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
		})
	}
}

// TestACgroupThatOthersCanHaveIsRefused: the path of a cgroup must contain the ID of its container or the UID of its pod.
// Otherwise a class could be set for other containers.
func TestACgroupThatOthersCanHaveIsRefused(t *testing.T) {
	const id = "0c5e"
	m := simcgroup.New()
	m.AddCgroup("/kubepods/pod1/other")
	m.AddCgroup("/kubepods.slice/kubepods-pod1.slice/cri-containerd-other.scope")
	m.AddProcess("/kubepods/pod1/other", 7)
	tree := detect(t, m)
	for _, path := range []string{"/", ".", "//", "-.slice", "/kubepods", "kubepods/./", "/kubepods/pod1", "/kubepods/pod1/other",
		"kubepods-pod1.slice", "kubepods-pod1.slice:cri-containerd:other"} {
		for want, target := range map[string]classes.Holder{
			"container's ID":    {ID: id, Container: "main", CgroupsPath: path, PID: 7},
			`container's ID ""`: {Container: "main", CgroupsPath: path, PID: 7},
			"pod's UID":         {ID: id, PodUID: "5ff1-9a", CgroupsPath: path},
			`pod's UID ""`:      {ID: id, CgroupsPath: path},
		} {
			if threads, err := tree.Threads(target); !errors.Is(err, ErrBadPath) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q, %s: got the threads %v, %v", path, want, threads, err)
			}
			if dir, _, err := tree.IODir(target); !errors.Is(err, ErrBadPath) {
				t.Errorf("%q, %s: got %s, %v", path, want, dir, err)
			}
		}
	}
}

func TestThreadsOfAllDescendantsAreListed(t *testing.T) {
	for name, m := range map[string]*simcgroup.Machine{"v2": simcgroup.New(), "v1": simcgroup.NewLegacy(), "hybrid": simcgroup.NewHybrid()} {
		t.Run(name, func(t *testing.T) {
			m.AddCgroup(dir + "/memory.slice/deeper")
			m.AddCgroup("/kubepods/pod1/other")
			m.AddProcess(dir, 100, 101, 102)
			m.AddProcess(dir+"/memory.slice/deeper", 90, 103)
			m.AddProcess("/kubepods/pod1/other", 200)
			got, err := detect(t, m).Threads(holder)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]int{90, 100, 101, 102, 103}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnEmptyCgroupHasNoThreads(t *testing.T) {
	for name, m := range map[string]*simcgroup.Machine{"v2": simcgroup.New(), "hybrid": simcgroup.NewHybrid()} {
		got, err := detect(t, withGroup(m)).Threads(holder)
		if err != nil || len(got) != 0 {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestThreadsOfAMissingCgroupAreAnError(t *testing.T) {
	_, err := detect(t, simcgroup.New()).Threads(holder)
	if !errors.Is(err, ErrNoCgroup) || !strings.Contains(err.Error(), "/sys/fs/cgroup"+dir) {
		t.Errorf("got %v", err)
	}
}

// TestARemovedDescendantHasNoThreads: the kernel says with ENODEV or ENOENT that a cgroup is gone. Another error is returned.
func TestARemovedDescendantHasNoThreads(t *testing.T) {
	m := simcgroup.New()
	m.AddCgroup(dir + "/gone")
	m.AddProcess(dir, 100)
	for err, fatal := range map[error]bool{syscall.ENODEV: false, syscall.ENOENT: false, syscall.EIO: true} {
		m.Inject(simcgroup.Fault{Op: "read", File: "cgroup.threads", Skip: 1, Err: err}) // the read of the descendant
		got, gotErr := detect(t, m).Threads(holder)
		if fatal != (gotErr != nil) || !fatal && !cmp.Equal(got, []int{100}) {
			t.Errorf("%v: got %v, %v", err, got, gotErr)
		}
		m.Heal()
	}
}

// TestALongLineOfAPodDoesNotHideTheCgroups has a line of more than 80 kB before the line of the cgroups. A container can make such a line:
// it moves the directory of its subPath below 80 directories whose names have 255 blanks. The kernel shows each blank as \040.
func TestALongLineOfAPodDoesNotHideTheCgroups(t *testing.T) {
	m := simcgroup.New()
	m.AddFile("/proc/1/mountinfo", "900 28 8:1 "+strings.Repeat("/"+strings.Repeat(`\040`, 255), 80)+
		" /var/lib/kubelet/pods/2/volume-subpaths/v/main/1 rw - ext4 /dev/sda1 rw\n"+"901 28 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	if dir, version, err := detect(t, m).IORoot(); err != nil || dir != "/sys/fs/cgroup" || version != 2 {
		t.Errorf("got %s, %d, %v", dir, version, err)
	}
}

// TestTheCgroupsAreFoundAlthoughMountinfoIsTooLarge reads a file that is larger than the limit.
func TestTheCgroupsAreFoundAlthoughMountinfoIsTooLarge(t *testing.T) {
	m := simcgroup.New()
	m.AddFile("/proc/1/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"+strings.Repeat("x", mountinfo.NodeLimit))
	if dir, _, err := detect(t, m).IORoot(); err != nil || dir != "/sys/fs/cgroup" {
		t.Errorf("got %s, %v", dir, err)
	}
}

// namespaced is a machine as seen from within a cgroup namespace. In /proc/<pid>/cgroup, paths are relative to the root
// of that namespace.
type namespaced struct{ *simcgroup.Machine }

func (n namespaced) ReadFile(path string) ([]byte, error) {
	data, err := n.Machine.ReadFile(path)
	if strings.HasPrefix(path, "/proc/") && strings.HasSuffix(path, "/cgroup") {
		data = []byte(strings.Replace(string(data), "0::/kubepods.slice", "0::/../..", 1))
	}
	return data, err
}

func TestTheChildThatCrunCreatesIsFoundFromWithinAContainer(t *testing.T) {
	m := withGroup(simcgroup.New())
	m.AddCgroup("/kubepods.slice/kubepods-pod1.slice/crio-c2.scope/container")
	m.AddProcess("/kubepods.slice/kubepods-pod1.slice/crio-c2.scope/container", 200)
	tree, err := Detect(namespaced{m})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := tree.IODir(classes.Holder{Container: "c", ID: "c2", CgroupsPath: "kubepods-pod1.slice:crio:c2", PID: 200})
	if want := "/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/crio-c2.scope/container"; err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestWithoutAHierarchyEveryTargetMayHaveACgroup(t *testing.T) {
	if !new(Tree).Exists(classes.Holder{Container: "c", CgroupsPath: "/kubepods/pod1/c1"}) {
		t.Error("the target is reported to have no cgroup, although no hierarchy was searched")
	}
}
