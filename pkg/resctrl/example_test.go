// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// files is a resctrl filesystem in memory, with the content of each file by path. A program for a real machine passes a
// type that calls the os package.
type files map[string]string

func (f files) ReadFile(name string) ([]byte, error) {
	text, exists := f[name]
	if !exists {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(text), nil
}

func (f files) WriteFile(name string, data []byte) error {
	f[name] = string(data)
	return nil
}

func (f files) Mkdir(name string) error {
	f[name+"/schemata"], f[name+"/mode"], f[name+"/tasks"] = f["/sys/fs/resctrl/schemata"], "shareable\n", ""
	return nil
}

func (f files) ReadDir(name string) ([]string, error) {
	names := map[string]bool{}
	for file := range f {
		if rest, below := strings.CutPrefix(file, name+"/"); below {
			first, _, _ := strings.Cut(rest, "/")
			names[first] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

func (f files) Remove(name string) error {
	maps.DeleteFunc(f, func(file, _ string) bool { return strings.HasPrefix(file, name+"/") })
	return nil
}

func (f files) Rename(_, _ string) error      { return errors.ErrUnsupported }
func (f files) Mount(_, _, _, _ string) error { return errors.ErrUnsupported }

// add adds files below a directory.
func (f files) add(dir string, more files) files {
	for name, text := range more {
		f[path.Join(dir, name)] = text
	}
	return f
}

// intel returns a machine with two caches of 12 ways.
func intel() files {
	return files{"/proc/self/mountinfo": "30 24 0:27 / /sys/fs/resctrl rw,relatime - resctrl resctrl rw\n"}.add("/sys/fs/resctrl", files{
		"schemata": "L3:0=fff;1=fff\nMB:0=100;1=100\n", "mode": "shareable\n", "tasks": "1\n",
		"info/L3/num_closids": "16\n", "info/L3/cbm_mask": "fff\n", "info/L3/min_cbm_bits": "1\n", "info/L3/shareable_bits": "0\n",
		"info/MB/num_closids": "8\n", "info/MB/min_bandwidth": "10\n", "info/MB/bandwidth_gran": "10\n",
	})
}

func ExampleFind() {
	tree, err := resctrl.Find(intel())
	fmt.Println(tree, err)

	_, err = resctrl.Find(files{"/proc/filesystems": "nodev\tresctrl\n"})
	if unavailable := (*resctrl.Unavailable)(nil); errors.As(err, &unavailable) {
		fmt.Printf("%s: %v\n", unavailable.Reason, err)
	}
	// Output:
	// at /sys/fs/resctrl with relatime,rw <nil>
	// NotMounted: resctrl is not mounted; run: mount -t resctrl resctrl /sys/fs/resctrl
}

func ExampleTree_Read() {
	tree, err := resctrl.Find(intel())
	if err != nil {
		fmt.Println(err)
		return
	}
	info, groups, err := tree.Read()
	if err != nil {
		fmt.Println(err)
		return
	}

	cache := info.Caches["L3"]
	fmt.Printf("%d groups of at most %d; L3 with the mask %#x in the domains %v\n", len(groups), info.CLOSIDs, cache.Mask, cache.Domains)
	fmt.Println(cache.Check(0xf0f))
	// Output:
	// 1 groups of at most 8; L3 with the mask 0xfff in the domains [0 1]
	// mask 0xf0f has a gap; this CPU accepts only contiguous bits
}

// A group gets a third of one cache and half of the bandwidth, and then a thread.
func ExampleTree_Write() {
	tree := resctrl.At(intel(), resctrl.DefaultMountPoint)
	wanted := resctrl.Schemata{{Schema: "L3", ID: 0}: 0xf, {Schema: resctrl.MB, ID: 0}: 50}
	if err := errors.Join(tree.Create("batch"), tree.Write("batch", wanted), tree.MoveTask(42, "batch")); err != nil {
		fmt.Println(err)
		return
	}

	got, err := tree.Schemata("batch")
	if err != nil {
		fmt.Println(err)
		return
	}
	tids, err := tree.Tasks("batch")
	fmt.Printf("%sthreads %v %v\n", got, tids, err)
	// Output:
	// L3:0=f
	// MB:0=50
	// threads [42] <nil>
}

func ExampleInfo_Rounded() {
	info, _, err := resctrl.At(intel(), resctrl.DefaultMountPoint).Read()
	if err != nil {
		fmt.Println(err)
		return
	}

	wanted := resctrl.Schemata{{Schema: resctrl.MB, ID: 0}: 55}
	fmt.Print(info.Rounded(wanted))
	fmt.Println(info.Differences(wanted, resctrl.Schemata{{Schema: resctrl.MB, ID: 0}: 60}))
	fmt.Println(info.Differences(wanted, resctrl.Schemata{{Schema: resctrl.MB, ID: 0}: 100}))
	// Output:
	// MB:0=60
	// []
	// [MB 0 is 100 instead of 55]
}

func ExampleTree_Counters() {
	host := intel().add("/sys/fs/resctrl/batch/mon_data/mon_L3_00", files{"llc_occupancy": "1048576\n", "mbm_total_bytes": "Unavailable\n"})
	counters, err := resctrl.At(host, resctrl.DefaultMountPoint).Counters("batch", []resctrl.Event{resctrl.LLCOccupancy, resctrl.MBMTotal})
	occupied := counters[resctrl.Counter{Event: resctrl.LLCOccupancy, Domain: 0}]
	_, has := counters[resctrl.Counter{Event: resctrl.MBMTotal, Domain: 0}]
	fmt.Printf("%.0f %v %v\n", occupied, has, err)
	// Output: 1048576 false <nil>
}

func ExampleParseSchemata() {
	schemata, err := resctrl.ParseSchemata([]byte("    MB:0=  100;1=   40\n    L3:0=00fff;1=0000f\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, domain := range schemata.Domains() {
		fmt.Println(domain, schemata.Value(domain))
	}
	// Output:
	// L3 0 fff
	// L3 1 f
	// MB 0 100
	// MB 1 40
}
