// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// These files of the root cgroup have the parameters of iocost, with a line for each disk for which iocost was set up
// (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files").
const (
	costModelFile = "io.cost.model"
	costQoSFile   = "io.cost.qos"
)

// CostModelKeys returns the keys of the linear model in io.cost.model. Keys with "bps" are in bytes per second. Keys
// with "iops" are in requests of 4 KiB per second.
func CostModelKeys() []string {
	return []string{"rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"}
}

// CostQoSKeys returns the keys of io.cost.qos that set the speed at which iocost issues requests. "rlat" and "wlat" are in microseconds,
// the others in percent.
func CostQoSKeys() []string { return []string{"rpct", "rlat", "wpct", "wlat", "min", "max"} }

// IsCostLatency reports whether a key of CostQoSKeys is in microseconds.
func IsCostLatency(key string) bool { return strings.HasSuffix(key, "lat") }

// Cost has the parameters of iocost for a disk: its line in io.cost.model and its line in io.cost.qos, both without the number of the
// disk, as the kernel prints them. Both are empty if iocost was never set up for the disk.
type Cost struct{ Model, QoS string }

// NewCost returns parameters that enable iocost. The values are in the order of CostModelKeys and of CostQoSKeys.
func NewCost(model [6]uint64, qos [6]float64) Cost {
	c := Cost{Model: "ctrl=user model=linear", QoS: "enable=1 ctrl=user"}
	for i, key := range CostModelKeys() {
		c.Model += fmt.Sprintf(" %s=%d", key, model[i])
	}
	for i, key := range CostQoSKeys() {
		decimals := 2
		if IsCostLatency(key) {
			decimals = 0
		}
		c.QoS += fmt.Sprintf(" %s=%.*f", key, decimals, qos[i])
	}
	return c
}

// ReadCosts reads the parameters of iocost of all disks. The result is nil if the kernel has no iocost.
func ReadCosts(host FS, root string) (map[Device]Cost, error) {
	qos, err := readCostFile(host, path.Join(root, costQoSFile))
	if qos == nil || err != nil {
		return nil, err
	}
	models, err := readCostFile(host, path.Join(root, costModelFile))
	if err != nil {
		return nil, err
	}

	costs := make(map[Device]Cost, len(qos))
	for dev, text := range qos {
		costs[dev] = Cost{Model: models[dev], QoS: text}
	}
	return costs, nil
}

// readCostFile returns the lines of a file without the numbers of the disks. The result is nil if the file does not exist.
func readCostFile(host FS, name string) (map[Device]string, error) {
	data, err := host.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for iocost: %w", err)
	}

	return parseCosts(data)
}

func parseCosts(data []byte) (map[Device]string, error) {
	texts := map[Device]string{}
	for _, fields := range fieldsOf(data) {
		dev, err := ParseDevice(fields[0])
		if err != nil {
			return nil, fmt.Errorf("iocost: %w", err)
		}
		texts[dev] = strings.Join(fields[1:], " ")
	}
	return texts, nil
}

// WriteCost writes the parameters of iocost of a disk. If iocost is to be enabled, it first writes the model. For empty parameters it
// disables iocost, and lets the kernel choose its parameters again.
func WriteCost(host FS, root string, dev Device, c Cost) error {
	writes := [][2]string{{costModelFile, written(c.Model, "ctrl=auto")}, {costQoSFile, written(c.QoS, "enable=0 ctrl=auto")}}
	if !c.Enabled() {
		slices.Reverse(writes)
	}
	for _, write := range writes {
		if err := host.WriteFile(path.Join(root, write[0]), []byte(dev.String()+" "+write[1])); err != nil {
			return fmt.Errorf("write %q: %w", write[1], err)
		}
	}
	return nil
}

// written returns the text to write so that the file reads `printed` again, or `initial` if `printed` is empty. With
// "ctrl=auto", the kernel also prints the parameters that it has chosen. These are left out, because written parameters
// would stay (ioc_cost_model_write in block/blk-iocost.c).
func written(printed, initial string) string {
	if printed == "" {
		return initial
	}
	if !strings.Contains(printed, "ctrl=auto") {
		return printed
	}
	return strings.Join(slices.DeleteFunc(strings.Fields(printed), func(field string) bool {
		return !strings.HasPrefix(field, "ctrl=") && !strings.HasPrefix(field, "enable=")
	}), " ")
}

// Enabled reports whether iocost acts on weights.
func (c Cost) Enabled() bool { return slices.Contains(strings.Fields(c.QoS), "enable=1") }
