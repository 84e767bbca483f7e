// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// LimitsFor implements ioapply.Limiter.
func (b *Backend) LimitsFor(_ *iodisks.Finder, _ classes.Holder, class string) (iocgroup.Values, error) {
	values, err := b.live.Load().valuesOf(class)
	return values.Only(iocgroup.Setting.IsLimit), err
}

// Known implements ioapply.Limiter.
func (b *Backend) Known() ioapply.Known {
	all := map[string]iocgroup.Values{}
	for name, class := range b.live.Load().classes {
		all[name] = class.values
	}
	return ioapply.Known{Classes: all}
}

// BeginRound implements classes.RoundObserver.
func (b *Backend) BeginRound() (end func()) {
	if b.scope == classes.ContainerScope {
		return func() {}
	}
	return b.cgroups.BeginRound()
}

// ShareWith implements classes.Sharer.
func (b *Backend) ShareWith(holdings func(podUID string) []classes.Holding) {
	b.cgroups.ShareWith(holdings)
}
