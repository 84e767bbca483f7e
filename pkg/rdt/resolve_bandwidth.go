// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import "math"

func (r *resolver) bandwidth() {
	info := r.info.Bandwidth
	if info == nil {
		r.unsupported("mbAllocation", "mb", r.config.optional[string(MB)], func(c class, p partition) bool {
			return c.mb != nil || p.mb != nil
		})
		return
	}
	for class, p := range r.config.classes() {
		for _, id := range info.Domains {
			base := r.limit("partition", p.name, p.mb, id, info.Max)
			// A partition's own share is never below what the kernel takes, so that its classes have a share of that.
			base = max(base, info.Min)
			value := r.limit("class", class.name, class.mb, id, base)
			r.result.Groups[GroupOf(class.name)].set(MB, id, max(value, info.Min))
		}
	}
}

// limit returns the value of a setting for one domain, within the value that it is a share of.
func (r *resolver) limit(of, name string, settings []setting[bandwidth], id int, base uint64) uint64 {
	if settings == nil {
		return base
	}
	all, unlimited := uint64(100), uint64(math.MaxUint32)
	wanted := valueFor(settings, id, bandwidth{percent: &all, mbps: &unlimited})
	return r.inUnit(of, name, wanted, base)
}

// inUnit is the wanted bandwidth in the unit that counts on this machine.
func (r *resolver) inUnit(of, name string, wanted bandwidth, base uint64) uint64 {
	switch unit := r.info.Bandwidth.Unit; {
	case unit == MBps && wanted.mbps != nil:
		return min(*wanted.mbps, base)
	case unit == EighthGBps && wanted.mbps != nil:
		return min(eighthGBps(*wanted.mbps), base)
	case unit == EighthGBps:
		return max(1, *wanted.percent*base/100)
	case unit == Percent && wanted.percent != nil:
		return *wanted.percent * base / 100
	case unit == MBps:
		r.wrongUnit(of, name, "mbAllocation has no MBps, and resctrl is mounted with mba_MBps; "+
			"give a value like \"1000MBps\" too, or mount resctrl without mba_MBps")
	default:
		r.wrongUnit(of, name, "mbAllocation has no per cent, and resctrl is mounted without mba_MBps; "+
			"give a value like \"50%\" too, or mount resctrl with -o mba_MBps")
	}
	return base
}

func (r *resolver) wrongUnit(of, name, problem string) {
	r.report(&ConfigError{Of: of, Name: name, Problem: problem, Err: ErrBandwidthUnit})
}

// eighthGBps turns MBps into AMD's unit of 1/8 GB/s, rounded down, but not to nothing.
func eighthGBps(mbps uint64) uint64 { return max(1, mbps*8/1000) }
