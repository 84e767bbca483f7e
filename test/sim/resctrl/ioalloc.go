// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// enableIOAlloc simulates resctrl_io_alloc_write in fs/resctrl/ctrlmondata.c, which takes the highest CLOSID.
func (m *mounted) enableIOAlloc(spec Spec, mask string) {
	m.closids[len(m.closids)-1] = true
	m.ioAlloc = map[int]string{}
	for _, id := range spec.L3.domains(spec) {
		m.ioAlloc[id] = mask
	}
}

// ioAllocFiles simulates resctrl_io_alloc_show and resctrl_io_alloc_cbm_show in fs/resctrl/ctrlmondata.c.
func (m *mounted) ioAllocFiles(spec Spec, s *schema) map[string]string {
	switch {
	case spec.IOAlloc == "":
		return nil
	case !strings.HasPrefix(s.name, "L3"):
		return map[string]string{s.name + "/io_alloc": "not supported\n"}
	case m.ioAlloc == nil:
		return map[string]string{s.name + "/io_alloc": "disabled\n"}
	}
	var masks []string
	for _, id := range s.domains {
		masks = append(masks, fmt.Sprintf("%d=%s", id, m.ioAlloc[id]))
	}
	return map[string]string{s.name + "/io_alloc": "enabled\n", s.name + "/io_alloc_cbm": strings.Join(masks, ";") + "\n"}
}

// writeIOAlloc simulates resctrl_io_alloc_write and resctrl_io_alloc_cbm_write.
func (f *FS) writeIOAlloc(file, data string) error {
	m := f.live
	m.status = ""
	if _, exists := f.info()[strings.TrimPrefix(file, "info/")]; !exists {
		return syscall.ENOENT
	}
	last := len(m.closids) - 1
	if strings.HasSuffix(file, "/io_alloc") {
		enable, err := strconv.ParseBool(strings.TrimSpace(data))
		switch {
		case err != nil:
			return syscall.EINVAL
		case enable && m.ioAlloc == nil && m.closids[last]:
			m.reportf("CLOSID (%d) used to configure L3 I/O allocation is not available", last)
			return syscall.ENOSPC
		case enable && m.ioAlloc == nil:
			m.enableIOAlloc(f.spec, fmt.Sprintf("%x", uint64(1)<<f.spec.L3.Ways-1))
		case !enable && m.ioAlloc != nil:
			m.ioAlloc, m.closids[last] = nil, false
		}
		return nil
	}
	return m.writeIOAllocMasks(data)
}

func (m *mounted) writeIOAllocMasks(data string) error {
	if m.ioAlloc == nil {
		m.reportf("io_alloc is not enabled on L3")
		return syscall.EINVAL
	}
	for entry := range strings.SplitSeq(strings.TrimSpace(data), ";") {
		name, mask, _ := strings.Cut(entry, "=")
		id, err := strconv.Atoi(name)
		known := false
		for _, s := range m.schemas {
			if !strings.HasPrefix(s.name, "L3") {
				continue
			}
			if _, ok := m.validMask(s, mask); !ok {
				return syscall.EINVAL
			}
			known = known || slices.Contains(s.domains, id)
		}
		if err != nil || !known {
			return syscall.EINVAL
		}
		m.ioAlloc[id] = mask
	}
	return nil
}
