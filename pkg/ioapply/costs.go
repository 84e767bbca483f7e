// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package ioapply

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Costs sets the parameters of iocost that class files have for disks, and restores those that a disk had before. It
// never changes the parameters of other disks. A classes.Memory keeps its records over restarts of the plugin.
type Costs struct {
	fs iocgroup.FS

	// mu guards the fields below. It is held during I/O, because no hook waits for it.
	mu     sync.Mutex
	memory classes.Memory
	set    map[iocgroup.Device]costRecord
}

// costRecord has the parameters that Costs has set for a disk, the resource to which they belong, and the parameters
// that the disk had before.
type costRecord struct {
	Resource    string
	Set, Before iocgroup.Cost
}

// The key of a record in the memory is costPrefix and the number of the disk.
const costPrefix = "iocost "

// NewCosts returns the parameters of a node. They are not saved until Remember is called.
func NewCosts(host iocgroup.FS) *Costs {
	return &Costs{fs: host, set: map[iocgroup.Device]costRecord{}}
}

// Remember loads the records of an earlier process, and saves changes from now on. Only the first call has an effect.
func (c *Costs) Remember(memory classes.Memory) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory != nil {
		return nil
	}

	c.memory = memory
	var errs []error
	for key, data := range memory.Load() {
		number, is := strings.CutPrefix(key, costPrefix)
		if !is {
			continue
		}
		var one costRecord
		dev, err := iocgroup.ParseDevice(number)
		errs = append(errs, err, json.Unmarshal(data, &one))
		c.set[dev] = one
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("read what was applied to iocost: %w", err)
	}
	return nil
}

// costStep is a write of parameters, and the record of the disk after the write. A zero record means that the disk has
// none.
type costStep struct {
	dev    iocgroup.Device
	cost   iocgroup.Cost
	record costRecord
}

// Set gives disks the parameters that a resource has for them, and restores the disks for which the resource has no
// parameters any more. It returns the disks that it has changed. If it returns an error, it has changed nothing.
func (c *Costs) Set(resource string, m *iocgroup.Machine, wanted map[iocgroup.Device]iocgroup.Cost) (changed []iocgroup.Device, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Version != 2 || len(wanted) == 0 && !c.has(resource) {
		return nil, nil // cgroup v1 has no iocost
	}
	now, err := iocgroup.ReadCosts(c.fs, m.Root)
	if err != nil {
		return nil, err
	}
	for dev := range c.set {
		if m.Names[dev] == "" { // another disk may get this number
			if err := c.record(dev, costRecord{}); err != nil {
				return nil, err
			}
		}
	}

	var undo []costStep
	for _, step := range c.plan(resource, now, wanted) {
		undo = append(undo, costStep{step.dev, now[step.dev], c.set[step.dev]})
		if err = c.make(m, now, step); err != nil {
			break
		}
		changed = append(changed, step.dev)
	}
	if err == nil {
		return changed, nil
	}
	for _, step := range slices.Backward(undo) {
		err = errors.Join(err, c.make(m, nil, step))
	}
	return nil, err
}

func (c *Costs) has(resource string) bool {
	for _, record := range c.set {
		if record.Resource == resource {
			return true
		}
	}
	return false
}

// plan returns the steps of Set.
func (c *Costs) plan(resource string, now, wanted map[iocgroup.Device]iocgroup.Cost) (steps []costStep) {
	for _, dev := range slices.SortedFunc(maps.Keys(c.set), iocgroup.CompareDevices) {
		record := c.set[dev]
		if _, stays := wanted[dev]; stays || record.Resource != resource {
			continue
		}
		before := record.Before
		if now[dev] != record.Set {
			before = now[dev] // another program has changed it
		}
		steps = append(steps, costStep{dev: dev, cost: before})
	}

	for _, dev := range slices.SortedFunc(maps.Keys(wanted), iocgroup.CompareDevices) {
		record, known := c.set[dev]
		if !known {
			record.Before = now[dev]
		}
		record.Resource, record.Set = resource, wanted[dev]
		if now[dev] != wanted[dev] || record != c.set[dev] {
			steps = append(steps, costStep{dev, wanted[dev], record})
		}
	}
	return steps
}

// make writes the parameters of a step, unless the disk has them now. It saves the record before it sets parameters,
// and removes the record after it has restored them. So if the plugin is killed at any moment, its next process can
// restore the parameters.
func (c *Costs) make(m *iocgroup.Machine, now map[iocgroup.Device]iocgroup.Cost, step costStep) error {
	if step.record == (costRecord{}) {
		if err := c.write(m, now, step); err != nil {
			return err
		}
		return c.record(step.dev, step.record)
	}
	if err := c.record(step.dev, step.record); err != nil {
		return err
	}
	return c.write(m, now, step)
}

func (c *Costs) write(m *iocgroup.Machine, now map[iocgroup.Device]iocgroup.Cost, step costStep) error {
	if now != nil && now[step.dev] == step.cost {
		return nil
	}
	if err := iocgroup.WriteCost(c.fs, m.Root, step.dev, step.cost); err != nil {
		return fmt.Errorf("iocost of %s: %w", m.DiskName(step.dev), err)
	}
	return c.verify(m, step)
}

// verify reads the parameters of a step back.
func (c *Costs) verify(m *iocgroup.Machine, step costStep) error {
	if step.record == (costRecord{}) {
		return nil // the kernel may choose the restored parameters
	}
	got, err := iocgroup.ReadCosts(c.fs, m.Root)
	if err != nil {
		return err
	}
	if got[step.dev] != step.cost {
		return fmt.Errorf("iocost of %s reads back as %+v, want %+v", m.DiskName(step.dev), got[step.dev], step.cost)
	}
	return nil
}

func (c *Costs) record(dev iocgroup.Device, record costRecord) error {
	if c.set[dev] == record {
		return nil
	}
	var data []byte // nil removes the key
	if record != (costRecord{}) {
		var err error
		if data, err = json.Marshal(record); err != nil {
			return err
		}
	}
	if c.memory != nil {
		if err := c.memory.Save(map[string][]byte{costPrefix + dev.String(): data}); err != nil {
			return fmt.Errorf("save what is applied to iocost: %w", err)
		}
	}
	if c.set[dev] = record; data == nil {
		delete(c.set, dev)
	}
	return nil
}
