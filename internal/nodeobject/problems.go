// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"cmp"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// problems has the latest errors of the watch and of writes. Only one of these errors is reported, because the watch
// and writes both fail if the server is away.
type problems struct {
	mu           sync.Mutex // guards the fields below
	outcomes     kubeapi.OutcomeLog
	watch, write error
}

func (p *problems) ofWatch() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.watch
}

func (p *problems) setWatch(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.watch = err
	p.outcomes.Record(cmp.Or(p.watch, p.write))
}

func (p *problems) setWrite(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.write = err
	p.outcomes.Record(cmp.Or(p.watch, p.write))
}
