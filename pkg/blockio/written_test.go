// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// memory implements classes.Memory. It returns err for each Save.
type memory struct {
	data []byte
	err  error
}

func (m *memory) Load() []byte { return m.data }

func (m *memory) Save(data []byte) error {
	if m.err == nil {
		m.data = data
	}
	return m.err
}

func (v *volumes) remember(m *memory) error { return v.volume.(classes.Rememberer).Remember(m) }

// TestLimitsOfAFormerProcessAreRemoved restarts the plugin. Before the new process starts, the class changes and the
// container with the class ends.
func TestLimitsOfAFormerProcessAreRemoved(t *testing.T) {
	for _, test := range []struct {
		name  string
		saved error // the result of the save by the former process
		want  string
	}{
		{"if they were saved", nil, ""},
		{"but not if they could not be saved", errors.New("no space left"), "8:16 rbps=3000000 wbps=max riops=max wiops=max\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, saved := withMounts("50 40 8:16 / /data rw - ext4 /dev/sdb rw"), &memory{err: test.saved}
			former := newVolumes(t, m)
			if err := former.remember(saved); err != nil {
				t.Fatal(err)
			}

			former.configure("classes: {silver: {maxReadBps: 3M}}")
			former.mustStart(10, "/data", "silver")

			next := newVolumes(t, m)
			if err := next.remember(saved); err != nil {
				t.Fatal(err)
			}

			next.configure(volumeSection)
			next.holdPod()
			next.repair()
			next.want(podMax, test.want)
		})
	}
}

func TestSavedLimitsThatCannotBeReadAreAnError(t *testing.T) {
	v := newVolumes(t, withMounts())
	if err := v.remember(&memory{data: []byte(`{"a":1}`)}); err == nil || !strings.Contains(err.Error(), "read the saved limits of volumes") {
		t.Errorf("got %v", err)
	}
}
