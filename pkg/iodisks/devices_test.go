// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func linked() *simcgroup.Machine { return iotest.AddLinks(iotest.AddDisks(simcgroup.New())) }

// TestPatternsMatchWholeDisks uses patterns that match disks, partitions, symbolic links and other files. Each matched
// disk or partition gives one disk, so sda and its partition sda1 give sda twice. A file that is no block device is
// reported as ignored only if the pattern matches no disk.
func TestPatternsMatchWholeDisks(t *testing.T) {
	for _, test := range []struct {
		pattern string
		want    []string
		// `partitions` and `ignored` are parts of the sentences that Match returns.
		partitions, ignored string
	}{
		{"/dev/sda", []string{"sda (8:0)"}, "", ""},
		{"/dev/sd[a-z]", []string{"sda (8:0)", "sdb (8:16)"}, "", ""},
		{"/dev/sda1", []string{"sda (8:0)"}, "/dev/sda1 is a partition: the class applies to its whole disk sda (8:0)", ""},
		{"/dev/disk/by-id/ata-SSD", []string{"sda (8:0)"}, "", ""},
		{"/dev/disk/by-id/*SSD*", []string{"sda (8:0)", "sda (8:0)"}, "/dev/disk/by-id/ata-SSD-part1 is a partition", ""},
		{"/dev/disk/by-id/ata-HDD", []string{"sdb (8:16)"}, "", ""},
		{"/dev/mapper/data", []string{"dm-0 (253:0)"}, "", ""},
		{"/dev/loop0", []string{"loop0 (7:0)"}, "", ""},
		{"/dev/nvme*", nil, "", ""},
		{"/dev/[ns]*", []string{"sda (8:0)", "sda (8:0)", "sdb (8:16)"}, "/dev/sda1 is a partition", ""}, // also matches /dev/null
		{"/dev/p*", nil, "", "/dev/plain is ignored: stat /dev/plain: block device required"},
		{"/dev/disk/by-id/gone", nil, "", "/dev/disk/by-id/gone is ignored: readlink /dev/sdz: no such file or directory"},
		{"/dev/loop-a", nil, "", "/dev/loop-a is ignored: more than 40 symbolic links"},
		{"/dev/null", nil, "", "/dev/null is ignored: stat /dev/null: block device required"},
		{"/dev/plain", nil, "", "/dev/plain is ignored: stat /dev/plain: block device required"},
	} {
		t.Run(test.pattern, func(t *testing.T) {
			got, err := NewNode(linked()).Match(test.pattern)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, disk := range got.Disks {
				names = append(names, disk.String())
			}
			if diff := cmp.Diff(test.want, names); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			wantSentence(t, got.Partitions, test.partitions)
			wantSentence(t, got.Ignored, test.ignored)
		})
	}
}

func wantSentence(t *testing.T, got []string, want string) {
	t.Helper()
	text := strings.Join(got, "; ")
	if (want == "") != (text == "") || !strings.Contains(text, want) {
		t.Errorf("got %q, want %q", text, want)
	}
}
