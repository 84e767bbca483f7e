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

func throttleFiles() [4]string {
	return [4]string{"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
		"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"}
}

func (g *group) addLegacyFiles(files map[string]*node) {
	for i, name := range throttleFiles() {
		files[name] = &node{read: func() []byte { return g.throttleText(i) }, write: func(data string) error { return g.setThrottle(i, data) }}
	}

	files["blkio.throttle.io_service_bytes_recursive"] = &node{read: func() []byte { return g.serviceText(transfers.bytes) }}
	files["blkio.throttle.io_serviced_recursive"] = &node{read: func() []byte { return g.serviceText(transfers.operations) }}
	if g.parent == nil || !slices.Contains(g.tree.machine.schedulers, "bfq") {
		return
	}

	files["blkio.bfq.weight"] = &node{read: func() []byte { return lines([]uint64{g.bfq.base}) }, write: g.setLegacyBFQWeight}
	files["blkio.bfq.weight_device"] = &node{read: g.bfq.text, write: g.setBFQWeight}
}

// zeroLimit is the stored value of an IOPS limit that the kernel has truncated to 0, because a multiple of 2^32 was written. The kernel
// lists such a limit as 0. The stored value 0 cannot represent it, because 0 means that there is no limit.
const zeroLimit = math.MaxUint64

// setThrottle simulates tg_set_conf of block/blk-throttle.c. The value 0 clears a limit. IOPS limits are truncated to
// 32 bits.
func (g *group) setThrottle(i int, data string) error {
	disk, rest, err := g.tree.machine.findDisk(data)
	if err != nil {
		return err
	}

	limit, found := scanNumber(rest)
	if !found {
		return syscall.EINVAL
	}

	if limit == math.MaxUint64 {
		limit = 0
	}

	if i >= 2 && limit != 0 {
		limit = uint64(uint32(limit))
		switch limit {
		case math.MaxUint32:
			limit = 0
		case 0:
			limit = zeroLimit
		}
	}

	limits := g.rates[disk]
	limits[i] = limit
	g.setRates(disk, limits)
	return nil
}

func (g *group) throttleText(i int) []byte {
	var text strings.Builder
	for _, d := range g.order {
		switch limit := g.rates[d][i]; limit {
		case 0:
		case zeroLimit:
			fmt.Fprintf(&text, "%s 0\n", d.number())
		default:
			fmt.Fprintf(&text, "%s %d\n", d.number(), limit)
		}
	}
	return []byte(text.String())
}

// setLegacyBFQWeight implements a write to blkio.bfq.weight. Unlike io.bfq.weight, this file accepts only a number.
func (g *group) setLegacyBFQWeight(data string) error {
	weight, err := strconv.ParseUint(strings.Trim(data, blanks), 0, 64)
	if err != nil {
		return syscall.EINVAL
	}
	return g.setBFQDefault(weight)
}
