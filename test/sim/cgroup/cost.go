// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// costs has the parameters of iocost of a disk. userQoS is false while the kernel chooses the parameters in `qos`, and
// userModel is false while it chooses those in `model`.
type costs struct {
	enabled, userQoS, userModel bool
	// qos has percentages in hundredths, and latencies in microseconds.
	qos, model [6]uint64
}

func costModelKeys() []string {
	return []string{"rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"}
}

func costQoSKeys() []string { return []string{"rpct", "rlat", "wpct", "wlat", "min", "max"} }

// refresh sets the parameters that the kernel chooses for a disk with rotation (AUTOP_HDD in block/blk-iocost.c).
func (c *costs) refresh() {
	if !c.userQoS {
		c.qos = [6]uint64{0, 250000, 0, 250000, 100, 1000000}
	}
	if !c.userModel {
		c.model = [6]uint64{174019176, 41708, 370, 178075866, 42705, 378}
	}
}

func control(user bool) string {
	if user {
		return "user"
	}
	return "auto"
}

func (m *Machine) costText(text func(c *costs) string) []byte {
	var all []string
	for _, d := range m.disks {
		if d.cost != nil {
			all = append(all, d.number()+" "+text(d.cost))
		}
	}
	return lines(all)
}

func (m *Machine) costQoSText() []byte {
	return m.costText(func(c *costs) string {
		text := fmt.Sprintf("enable=%d ctrl=%s", map[bool]int{true: 1}[c.enabled], control(c.userQoS))
		for i, key := range costQoSKeys() {
			if strings.HasSuffix(key, "lat") {
				text += fmt.Sprintf(" %s=%d", key, c.qos[i])
			} else {
				text += fmt.Sprintf(" %s=%d.%02d", key, c.qos[i]/100, c.qos[i]%100)
			}
		}
		return text
	})
}

func (m *Machine) costModelText() []byte {
	return m.costText(func(c *costs) string {
		text := fmt.Sprintf("ctrl=%s model=linear", control(c.userModel))
		for i, key := range costModelKeys() {
			text += fmt.Sprintf(" %s=%d", key, c.model[i])
		}
		return text
	})
}

// changeCost sets up iocost for a disk, and passes each word of a write and a copy of the parameters to `set`.
func (m *Machine) changeCost(data string, set func(c *costs, key, value string) bool) error {
	disk, rest, err := m.findDisk(data)
	if err != nil {
		return err
	}
	if disk.cost == nil {
		disk.cost = &costs{}
		disk.cost.refresh()
	}

	next := *disk.cost
	for _, word := range strings.Fields(rest) {
		key, value, found := strings.Cut(word, "=")
		if !found || !set(&next, key, value) {
			return syscall.EINVAL
		}
	}
	if next.qos[4] > next.qos[5] {
		return syscall.EINVAL
	}
	next.refresh()
	*disk.cost = next
	return nil
}

// setCostQoS simulates ioc_qos_write of block/blk-iocost.c.
func (m *Machine) setCostQoS(data string) error {
	return m.changeCost(data, func(c *costs, key, value string) bool {
		switch key {
		case "enable":
			number, err := strconv.ParseUint(value, 10, 64)
			c.enabled = number != 0
			return err == nil
		case "ctrl":
			c.userQoS = value == "user"
			return value == "user" || value == "auto"
		}

		i := slices.Index(costQoSKeys(), key)
		if i < 0 {
			return false
		}
		number, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil || number < 0:
			return false
		case strings.HasSuffix(key, "lat"):
			c.qos[i], c.userQoS = uint64(number), true
			return !strings.Contains(value, ".")
		case strings.HasSuffix(key, "pct") && number > 100:
			return false
		case i >= 4:
			c.qos[i] = min(max(uint64(number*100), 100), 1000000)
		default:
			c.qos[i] = uint64(number * 100)
		}
		c.userQoS = true
		return true
	})
}

// setCostModel simulates ioc_cost_model_write of block/blk-iocost.c.
func (m *Machine) setCostModel(data string) error {
	return m.changeCost(data, func(c *costs, key, value string) bool {
		i := slices.Index(costModelKeys(), key)
		number, err := strconv.ParseUint(value, 10, 64)
		switch {
		case key == "ctrl":
			c.userModel = value == "user"
			return value == "user" || value == "auto"
		case key == "model":
			return value == "linear"
		case i < 0 || err != nil:
			return false
		}
		c.model[i], c.userModel = number, true
		return true
	})
}
