// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

func TestTheChaseReadsEachCacheLineOnceInACycle(t *testing.T) {
	const lines = 100
	words := cycle(lines * cacheLine)
	visited, at := map[uint64]bool{}, uint64(0)
	for range lines {
		if visited[at] || at%lineWords != 0 {
			t.Fatalf("after %d lines the chase is at word %d", len(visited), at)
		}
		visited[at] = true
		at = words[at]
	}
	if at != 0 {
		t.Errorf("after visiting all cache lines, the pointer chase is at word %d, want 0", at)
	}
}

func TestTheDomainHasTheCPUsThatShareAnL3CacheAndThatMayBeUsed(t *testing.T) {
	sys := func(size, shared string) fstest.MapFS {
		dir := "devices/system/cpu/cpu0/cache/"
		return fstest.MapFS{
			dir + "index2/level": {Data: []byte("2\n")}, dir + "index2/size": {Data: []byte("256K\n")},
			dir + "index2/shared_cpu_list": {Data: []byte("0-1\n")},
			dir + "index3/level":           {Data: []byte("3\n")}, dir + "index3/size": {Data: []byte(size)},
			dir + "index3/shared_cpu_list": {Data: []byte(shared)},
		}
	}

	for name, test := range map[string]struct {
		sys  fstest.MapFS
		want domain
		err  string
	}{
		"two ranges":             {sys: sys("16384K\n", "0-2,8-9\n"), want: domain{cpus: []int{0, 2, 8}, size: 16 << 20}},
		"one CPU":                {sys: sys("16384K\n", "0\n"), err: "no two CPUs that this program may use share an L3 cache"},
		"no L3 cache":            {sys: fstest.MapFS{}, err: "no two CPUs that this program may use share an L3 cache"},
		"a size without a value": {sys: sys("", "0-1\n"), err: "size of the L3 cache in /sys/devices/system/cpu/cpu0/cache/index3"},
		"a wrong list":           {sys: sys("16384K\n", "0-x\n"), err: "cache/index3/shared_cpu_list"},
	} {
		t.Run(name, func(t *testing.T) {
			var allowed unix.CPUSet // the CPUs that this program may use
			for _, cpu := range []int{0, 2, 8, 11} {
				allowed.Set(cpu)
			}

			got, err := findDomain(test.sys, &allowed)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(domain{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValuesAreMediansWithoutTheFirstSecond(t *testing.T) {
	l := &lines{text: []byte("900 900\n1 10\n3 30\n2 20\n")}
	got, err := l.medians()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{2, 20}, got); diff != "" {
		t.Error(diff)
	}
	l.reset()
	if _, err := l.medians(); err == nil || !strings.Contains(err.Error(), "measure for longer") {
		t.Errorf("without lines: %v", err)
	}
}

// TestASlowContainerIsWaitedFor: medians need two lines of the container. For a measurement of 3 s, the experiment waits for them
// for at most 55 s.
func TestASlowContainerIsWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		interval time.Duration // between lines
		want     string
	}{
		"a line in 20 seconds": {20 * time.Second, ""},
		"a line in an hour":    {time.Hour, "measure for longer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := &container{lines: &lines{}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go pause.Every(ctx, test.interval, func() { _, _ = slow.lines.Write([]byte("5 6\n")) })

				e := &experiment{duration: 3 * time.Second}
				got, err := e.values(ctx, slow, []*container{slow})
				if test.want != "" {
					if err == nil || !strings.Contains(err.Error(), test.want) {
						t.Errorf("got %v and %v, want %q", got, err, test.want)
					}
					return
				}
				// The neighbour is the same container. Its bandwidth is 5 bytes a second, in GB/s.
				if diff := cmp.Diff([]float64{5, 6, 5e-9}, got); err != nil || diff != "" {
					t.Errorf("got %v\n%s", err, diff)
				}
			})
		})
	}
}
