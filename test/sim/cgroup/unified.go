// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func (g *group) addUnifiedFiles(files map[string]*node) {
	m := g.tree.machine
	if g.parent == nil {
		if m.iocost {
			files["io.cost.qos"] = &node{read: m.costQoSText, write: m.setCostQoS}
			files["io.cost.model"] = &node{read: m.costModelText, write: m.setCostModel}
		}
		return
	}

	files["io.stat"] = &node{read: g.ioStatText}
	files["io.max"] = &node{read: g.ioMaxText, write: g.setIOMax}
	if m.iocost {
		files["io.weight"] = &node{read: g.cost.text, write: g.setCostWeight}
	}

	if !slices.Contains(m.without, "io.latency") {
		files["io.latency"] = &node{read: g.latencyText, write: g.setLatency}
	}

	if slices.Contains(m.schedulers, "bfq") {
		files["io.bfq.weight"] = &node{read: g.bfq.text, write: g.setBFQWeight}
	}
}

// setLatency simulates iolatency_set_limit of block/blk-iolatency.c. The last target of a write applies.
func (g *group) setLatency(data string) error {
	disk, rest, err := g.tree.machine.findDisk(data)
	if err != nil {
		return err
	}

	var target uint64
	for word := range strings.SplitSeq(rest, " ") {
		value, found := strings.CutPrefix(word, "target=")
		number, isNumber := scanNumber(value)
		if !found || !isNumber && strings.TrimSpace(value) != "max" {
			return syscall.EINVAL
		}
		target = number
	}
	g.latency[disk] = target
	return nil
}

func (g *group) latencyText() []byte {
	var all []string
	for d, target := range g.latency {
		if target != 0 {
			all = append(all, fmt.Sprintf("%s target=%d", d.number(), target))
		}
	}
	slices.Sort(all)
	return lines(all)
}

func rateKeys() [4]string { return [4]string{"rbps", "wbps", "riops", "wiops"} }

// setIOMax simulates tg_set_limit of block/blk-throttle.c. It sets the limits of one device. Limits that `data` does not name stay as
// they are.
func (g *group) setIOMax(data string) error {
	disk, rest, err := g.tree.machine.findDisk(data)
	if err != nil {
		return err
	}
	limits := g.rates[disk]
	for _, word := range strings.Fields(rest) {
		if err := setRate(&limits, word); err != nil {
			return err
		}
	}
	g.setRates(disk, limits)
	return nil
}

func setRate(limits *rates, word string) error {
	key, value, found := strings.Cut(word, "=")
	limit, isNumber := scanNumber(value)
	switch {
	case !found || !isNumber && value != "max":
		return syscall.EINVAL
	case isNumber && limit == 0:
		return syscall.ERANGE
	case !isNumber || limit == math.MaxUint64:
		limit = 0
	case limit == 1:
		return syscall.EINVAL
	}

	keys := rateKeys()
	i := slices.Index(keys[:], key)
	if i < 0 {
		return syscall.EINVAL
	}

	if i >= 2 && limit >= math.MaxUint32 {
		limit = 0
	}

	limits[i] = limit
	return nil
}

// scanNumber simulates sscanf("%llu"). It returns the digits at the start, modulo 2^64.
func scanNumber(text string) (number uint64, found bool) {
	text = strings.TrimLeft(text, blanks)
	for i := 0; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		number, found = number*10+uint64(text[i]-'0'), true
	}
	return number, found
}

func (g *group) setRates(d *disk, limits rates) {
	g.rates[d] = limits
	if !slices.Contains(g.order, d) {
		g.order = slices.Insert(g.order, 0, d)
	}
}

func (g *group) ioMaxText() []byte {
	var text strings.Builder
	for _, d := range g.order {
		if g.rates[d] == (rates{}) {
			continue
		}
		text.WriteString(d.number())
		for i, key := range rateKeys() {
			value := "max"
			if limit := g.rates[d][i]; limit != 0 {
				value = strconv.FormatUint(limit, 10)
			}
			text.WriteString(" " + key + "=" + value)
		}
		text.WriteString("\n")
	}

	return []byte(text.String())
}

func (w weights) text() []byte {
	var devices []string
	for d, weight := range w.devices {
		devices = append(devices, fmt.Sprintf("%s %d", d.number(), weight))
	}
	slices.Sort(devices)
	return lines(append([]string{fmt.Sprintf("default %d", w.base)}, devices...))
}

// setCostWeight simulates ioc_weight_write of block/blk-iocost.c.
func (g *group) setCostWeight(data string) error {
	if !strings.Contains(data, ":") {
		text := strings.TrimPrefix(data, "default")
		weight, found := scanNumber(text)
		if !found || weight < 1 || weight > 10000 {
			return syscall.EINVAL
		}
		g.cost.base = weight
		return nil
	}

	disk, rest, err := g.tree.machine.findDisk(data)
	if err != nil {
		return err
	}

	if disk.cost == nil {
		return syscall.EOPNOTSUPP
	}

	weight, found := scanNumber(rest)
	switch {
	case strings.HasPrefix(rest, "default"):
		delete(g.cost.devices, disk)
	case !found || weight < 1 || weight > 10000:
		return syscall.EINVAL
	default:
		g.cost.devices[disk] = weight
	}

	return nil
}

// setBFQWeight simulates bfq_io_set_weight of block/bfq-cgroup.c. A new default clears the weights of devices.
func (g *group) setBFQWeight(data string) error {
	text := strings.Trim(data, blanks)
	weight, err := strconv.ParseUint(text, 0, 64)
	if rest, found := strings.CutPrefix(text, "default"); err != nil && found {
		if number, scanned := scanNumber(rest); scanned {
			weight, err = number, nil
		}
	}
	if err == nil {
		return g.setBFQDefault(weight)
	}

	disk, rest, err := g.tree.machine.findDisk(data)
	if err != nil {
		return err
	}

	if disk.scheduler != "bfq" {
		return syscall.EOPNOTSUPP
	}

	weight, found := scanNumber(rest)
	switch {
	case !found && strings.Trim(rest, blanks) == "default":
		delete(g.bfq.devices, disk)
	case !found:
		return syscall.EINVAL
	case weight < 1 || weight > 1000:
		return syscall.ERANGE
	default:
		g.bfq.devices[disk] = weight
	}

	return nil
}

func (g *group) setBFQDefault(weight uint64) error {
	if weight < 1 || weight > 1000 {
		return syscall.ERANGE
	}
	g.bfq = weights{base: weight, devices: map[*disk]uint64{}}
	return nil
}
