// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mountFile is a machine on which each file has the same mounts.
type mountFile string

func (f mountFile) ReadFile(string) ([]byte, error) { return []byte(f), nil }

func (mountFile) ReadDir(string) ([]string, error) { return nil, nil }

func TestCgroupHierarchiesAreFoundInMountinfo(t *testing.T) {
	for _, test := range []struct {
		name, mountinfo string
		want            []hierarchy
	}{
		{"v2", "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
			[]hierarchy{{"/sys/fs/cgroup", "/", 2, nil}}},
		{"v1 with several controllers in a hierarchy", "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,xattr,cpu,cpuacct\n" +
			"32 24 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,release_agent=/x,name=systemd\n",
			[]hierarchy{{"/sys/fs/cgroup/cpu,cpuacct", "/", 1, []string{"cpu", "cpuacct"}}, {"/sys/fs/cgroup/systemd", "/", 1, []string{"name=systemd"}}}},
		{"the default mount point before others", "30 24 0:26 / /run/x/cgroup rw - cgroup2 cgroup2 rw\n31 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			[]hierarchy{{"/sys/fs/cgroup", "/", 2, nil}}},
		{"the whole tree before a part", "30 24 0:26 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 24 0:26 / /mnt rw - cgroup2 cgroup2 rw\n",
			[]hierarchy{{"/mnt", "/", 2, nil}}},
		{"a mount hidden by a later one is ignored", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 24 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", nil},
		{"escaped blanks", `30 24 0:26 / /mnt/a\040b\134 rw - cgroup2 cgroup2 rw`, []hierarchy{{`/mnt/a b\`, "/", 2, nil}}},
		{"lines that are no mounts", "garbage\n30 24 0:26 / /sys - cgroup2 x rw\n30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n30 24 0:26 / /sys rw - cgroup2",
			[]hierarchy{{"/sys/fs/cgroup", "/", 2, nil}}},
		{"no cgroup mounts", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := readHierarchies(mountFile(test.mountinfo), "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(hierarchy{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMalformedFilesOfTheKernelAreErrors(t *testing.T) {
	for _, text := range []string{"x", "-1", "5 x"} {
		if got, err := parseIDs([]byte(text)); err == nil {
			t.Errorf("parseIDs accepts %q as %v", text, got)
		}
	}

	for _, text := range []string{"", "0::", "0::/../x", "nonsense", "3:cpu:/x"} {
		if got, err := parseProcCgroup([]byte(text), hierarchy{version: 2}); err == nil {
			t.Errorf("parseProcCgroup accepts %q as %v", text, got)
		}
	}
}

func TestProcessesOutsideThePIDNamespaceAreSkipped(t *testing.T) {
	got, err := parseIDs([]byte("0\n12\n0\n13\n"))
	if err != nil || !cmp.Equal(got, []int{12, 13}) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTheCgroupOfAHierarchyIsReadFromProc(t *testing.T) {
	const hybrid = "4:blkio:/a\n3:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/d\n"
	for want, h := range map[string]hierarchy{
		"/a": {version: 1, controllers: []string{"blkio"}}, "/b": {version: 1, controllers: []string{"cpu", "cpuacct"}},
		"/c": {version: 1, controllers: []string{"name=systemd"}}, "/d": {version: 2},
	} {
		if got, err := parseProcCgroup([]byte(hybrid), h); err != nil || got != want {
			t.Errorf("%v: got %q, %v; want %q", h, got, err, want)
		}
	}
}

// TestACgroupBelowAPartlyMountedTreeIsWithinIt mounts the cgroup `root` at /cg. The path `group` is from /proc/PID/cgroup. It
// begins with `root` or, in a cgroup namespace, is relative to `root`.
func TestACgroupBelowAPartlyMountedTreeIsWithinIt(t *testing.T) {
	for _, test := range []struct{ root, group, want string }{
		{"/", "/a/b", "/cg/a/b"}, {"/docker/1", "/docker/1/a", "/cg/a"}, {"/docker/1", "/a", "/cg/a"},
		{"/docker/1", "/docker/10/a", "/cg/docker/10/a"}, {"/docker/1", "/docker/1", "/cg"},
	} {
		if got := (hierarchy{point: "/cg", root: test.root}).dirOf(test.group); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add("30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n31 24 0:27 / /a\\040b rw - cgroup cgroup rw,blkio\n")
	f.Fuzz(func(t *testing.T, text string) {
		found, err := readHierarchies(mountFile(text), "")
		if err == nil && len(found) > strings.Count(text, "\n")+1 {
			t.Errorf("%q has fewer lines than the parsed hierarchies: %v", text, found)
		}
	})
}

func FuzzIDs(f *testing.F) {
	f.Add("1\n2\n0\n")
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := parseIDs([]byte(text))
		for _, id := range ids {
			if err == nil && id <= 0 {
				t.Errorf("the IDs in %q include %d, which is not positive", text, id)
			}
		}
	})
}

func FuzzProcCgroup(f *testing.F) {
	f.Add("4:blkio:/a\n0::/d\n", true)
	f.Fuzz(func(t *testing.T, text string, legacy bool) {
		h := hierarchy{version: 2}
		if legacy {
			h = hierarchy{version: 1, controllers: []string{"blkio"}}
		}
		group, err := parseProcCgroup([]byte(text), h)
		if err == nil && (!strings.HasPrefix(group, "/") || strings.Contains(group+"/", "/../")) {
			t.Errorf("the cgroup in %q is %q, which is not below the root", text, group)
		}
	})
}
