// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// devicesField is the field of the section rdt that sets which part of the L3 caches device traffic may use (io_alloc).
const devicesField = "deviceTraffic"

// parseDevices reads the field deviceTraffic. It returns nil if the field is missing.
func parseDevices(f *classes.Field) []setting[share] {
	if f == nil {
		return nil
	}
	fields := f.Fields("l3Allocation")
	if fields != nil && fields["l3Allocation"] == nil {
		f.Report(`has no l3Allocation; write a share such as l3Allocation: "20%%"`)
	}
	return parseAllocation(fields, true).caches[resctrl.L3]
}

// deviceTraffic gives device traffic a part of each L3. A mask is used unchanged. A size, or a share in per cent,
// becomes the highest bits that no partition has.
func (r *resolver) deviceTraffic() {
	settings := r.config.devices
	if settings == nil {
		return
	}
	schemas := r.info.Schemas(resctrl.L3)
	if len(schemas) == 0 || !r.info.Caches[schemas[0]].SharesWithDevices {
		r.problems = append(r.problems, errors.New(
			devicesField+": this machine cannot limit the cache of device traffic (info/L3/io_alloc); remove "+devicesField))
		return
	}

	cache := r.info.Caches[schemas[0]]
	r.result.Devices = resctrl.Schemata{}
	for _, id := range cache.Domains {
		mask, err := valueFor(settings, id, share{unified: {mask: cache.Mask}})[unified].outside(r.partitioned(cache, id), cache, id)
		if err != nil {
			r.problems = append(r.problems, fmt.Errorf("%s: L3 %d: %w", devicesField, id, err))
			return // the other caches have the same problem
		}
		r.result.Devices[resctrl.Domain{Schema: schemas[0], ID: id}] = mask
	}
}

// partitioned returns the bits of an L3 that partitions have. A partition without a share of this cache has no bits of
// its own.
func (r *resolver) partitioned(cache resctrl.CacheInfo, id int) (mask uint64) {
	masks, err := r.partitionMasks(resctrl.L3, cache, id)
	if err != nil {
		return cache.Mask // reported already
	}
	for _, p := range r.config.partitions {
		for _, divided := range masks {
			if p.caches[resctrl.L3] != nil {
				mask |= divided[p.name]
			}
		}
	}
	return mask
}

// outside returns the bits of a cache that the proportion selects. Unless the proportion is a mask, these bits are
// outside of the mask `taken`.
func (p proportion) outside(taken uint64, cache resctrl.CacheInfo, id int) (uint64, error) {
	if p.mask != 0 {
		return p.mask, cache.Check(p.mask)
	}
	if p.high == 0 && p.bytes == 0 {
		return 0, p.errEmpty()
	}
	width := uint64(bits.OnesCount64(cache.Mask))
	n := max(p.high*width/100, cache.LeastBits())
	if p.bytes > 0 {
		var err error
		if n, err = p.bitsIn(cache, id); err != nil {
			return 0, err
		}
	}
	for first := int(width) - int(min(n, width)); first >= 0 && n <= width; first-- { //nolint:gosec // at most 64 bits
		if mask := uint64(1<<n-1) << first; mask&taken == 0 {
			return mask, nil
		}
	}
	return 0, fmt.Errorf("%s needs %d contiguous bits of the cache outside the partitions, but the partitions have the bits %#x of %#x; "+
		"reduce the shares of the partitions, or write a mask, which may overlap them", p.text, n, taken, cache.Mask)
}

// deviceChange is a change of the masks of device traffic. Masks that are nil mean that io_alloc is disabled.
type deviceChange struct {
	schema   resctrl.Schema
	from, to resctrl.Schemata
}

// memoryKey is the key of the saved settings of device traffic.
const memoryKey = "rdt/" + devicesField

// savedDevices is the JSON of the former settings of device traffic. Masks is nil if io_alloc was disabled.
type savedDevices struct {
	Schema resctrl.Schema `json:"schema"`
	Masks  *string        `json:"masks,omitempty"`
}

// Remember implements classes.Rememberer. After a restart of the plugin, the former settings of device traffic can thus
// be restored.
func (b *Backend) Remember(memory classes.Memory) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memory = memory
	data := memory.Load()[memoryKey]
	if data == nil {
		return nil
	}
	var saved savedDevices
	if err := json.Unmarshal(data, &saved); err != nil {
		return fmt.Errorf("read the saved settings of device traffic: %w", err)
	}
	was := &deviceChange{schema: saved.Schema}
	if saved.Masks != nil {
		masks, err := resctrl.ParseSchemata(fmt.Appendf(nil, "%s:%s", saved.Schema, *saved.Masks))
		if err != nil {
			return fmt.Errorf("read the saved settings of device traffic: %w", err)
		}
		was.from = masks
	}
	b.devices = was
	return nil
}

// saveDevices saves the settings of device traffic before a change. If `c` is nil, no configuration sets device
// traffic.
func (b *Backend) saveDevices(c *deviceChange) error {
	if b.memory == nil {
		return nil
	}
	var data []byte
	if c != nil {
		saved := savedDevices{Schema: c.schema}
		if c.from != nil {
			masks := c.from.Values(c.schema)
			saved.Masks = &masks
		}
		var err error
		if data, err = json.Marshal(saved); err != nil {
			return err
		}
	}
	if err := b.memory.Save(map[string][]byte{memoryKey: data}); err != nil {
		return fmt.Errorf("save the former settings of device traffic: %w", err)
	}
	return nil
}

// on returns the change, or nil if the cache of the change has no io_alloc, e.g. because resctrl was mounted with other
// options.
func (c *deviceChange) on(info resctrl.Info) *deviceChange {
	if c == nil || !info.Caches[c.schema].SharesWithDevices {
		return nil
	}
	return c
}

// back returns the masks that undo the change. For a cache that has since appeared with its CPUs, this is the whole
// mask.
func (c *deviceChange) back(info resctrl.Info) resctrl.Schemata {
	if c.from == nil {
		return nil
	}
	masks, cache := resctrl.Schemata{}, info.Caches[c.schema]
	for _, id := range cache.Domains {
		domain := resctrl.Domain{Schema: c.schema, ID: id}
		masks[domain] = cache.Mask
		if mask, known := c.from[domain]; known {
			masks[domain] = mask
		}
	}
	return masks
}

// deviceChange returns the change of device traffic that the next configuration needs, or nil. If the next
// configuration does not set device traffic, the change restores the values from before an earlier configuration set
// it. Otherwise deviceChange records these values, unless an earlier configuration has set device traffic.
func (b *Backend) deviceChange(t resctrl.Tree, next *live) (*deviceChange, error) {
	before := b.devices.on(next.machine.info)
	if next.resolution.Devices == nil && before == nil {
		return nil, nil //nolint:nilnil // there is nothing to change
	}
	schema := next.machine.info.Schemas(resctrl.L3)[0]
	from, err := t.DeviceTraffic(schema)
	if err != nil {
		return nil, fmt.Errorf("read the masks of device traffic: %w", err)
	}
	to := next.resolution.Devices
	if to == nil {
		to = before.back(next.machine.info)
	}
	change := &deviceChange{schema, from, to}
	if before == nil {
		if err := b.saveDevices(change); err != nil { // before the change, because the plugin may end after it
			return nil, err
		}
		b.devices = change
	}
	return change, nil
}

// do returns the operation that changes device traffic. It returns none if the masks stay the same.
func (c *deviceChange) do() []Op {
	if c == nil || sameMasks(c.from, c.to) {
		return nil
	}
	return []Op{{Kind: SetDevices, Schemata: c.to}}
}

// undo returns the operation that restores the former masks of the caches that this machine has now, if they differ.
func (c *deviceChange) undo(now resctrl.Info) []Op {
	if c == nil {
		return nil
	}
	cache, former := now.Caches[c.schema], maps.Clone(c.from)
	maps.DeleteFunc(former, func(d resctrl.Domain, _ uint64) bool { return !slices.Contains(cache.Domains, d.ID) })
	return (&deviceChange{c.schema, cache.Devices, former}).do()
}

// sameMasks reports whether two masks of device traffic are equal, or io_alloc is disabled in both.
func sameMasks(a, b resctrl.Schemata) bool { return (a == nil) == (b == nil) && maps.Equal(a, b) }

// setDevices records the settings that device traffic had before a configuration replaced them, or nil. If they cannot be saved, a
// later process restores the settings that were saved before.
func (b *Backend) setDevices(c *deviceChange) {
	if c == b.devices {
		return
	}
	b.devices = c
	if err := b.saveDevices(c); err != nil {
		b.log.Warn("cannot save what device traffic had before class files set it", "error", err)
	}
}

// deviceDrift reports whether another program has changed the masks of device traffic that the configuration sets.
func deviceDrift(t resctrl.Tree, now *live) (bool, error) {
	wanted := now.resolution.Devices
	if wanted == nil {
		return false, nil
	}
	got, err := t.DeviceTraffic(now.machine.info.Schemas(resctrl.L3)[0])
	return !maps.Equal(wanted, got), err
}
