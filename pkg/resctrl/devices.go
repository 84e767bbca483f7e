// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"fmt"
	"maps"
	"strings"
)

// DeviceTraffic reads the masks of device traffic in a cache (io_alloc_cbm). The result is nil if io_alloc is not enabled.
func (t Tree) DeviceTraffic(schema Schema) (Schemata, error) {
	state, err := t.host.ReadFile(t.path("info", string(schema), "io_alloc"))
	if err != nil || strings.TrimSpace(string(state)) != "enabled" {
		return nil, err
	}
	masks, err := t.host.ReadFile(t.path("info", string(schema), "io_alloc_cbm"))
	if err != nil {
		return nil, err
	}
	return ParseSchemata(fmt.Appendf(nil, "%s:%s", schema, masks))
}

// SetDeviceTraffic sets the masks of device traffic in a cache, and enables io_alloc for that. This takes a CLOSID. If `masks` is nil,
// SetDeviceTraffic disables io_alloc.
func (t Tree) SetDeviceTraffic(schema Schema, masks Schemata) error {
	if masks == nil {
		return t.writeInfo(schema, "io_alloc", "0")
	}
	if err := t.writeInfo(schema, "io_alloc", "1"); err != nil {
		return err
	}
	return t.writeInfo(schema, "io_alloc_cbm", masks.Values(schema))
}

func (t Tree) writeInfo(schema Schema, file, text string) error {
	if err := t.host.WriteFile(t.path("info", string(schema), file), []byte(text+"\n")); err != nil {
		return fmt.Errorf("write %q to info/%s/%s: %w", text, schema, file, t.explain(err, ""))
	}
	return nil
}

// WithDeviceTraffic returns a copy of the info in which device traffic has `masks` in a cache. If `masks` is nil,
// io_alloc is disabled in the copy.
func (i Info) WithDeviceTraffic(schema Schema, masks Schemata) Info {
	i.Caches = maps.Clone(i.Caches)
	i.DeviceCLOSIDs = 0
	for name, cache := range i.Caches {
		if name.Level() == schema.Level() {
			cache.Devices = nil
			if masks != nil {
				cache.Devices = Schemata{}
				i.DeviceCLOSIDs = 1
			}
			for domain, mask := range masks {
				cache.Devices[Domain{name, domain.ID}] = mask
			}
		}
		i.Caches[name] = cache
	}
	return i
}
