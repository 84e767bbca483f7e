// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// observed is the newest version of the object that the publisher knows. It comes from the watch or from the response to a write.
type observed struct {
	mu      sync.Mutex                 // guards the fields below
	object  *unstructured.Unstructured // nil if the object does not exist
	version string                     // resource version of the object or of its deletion
}

func (o *observed) get() *unstructured.Unstructured {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.object
}

func (o *observed) set(object *unstructured.Unstructured, deleted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	version := object.GetResourceVersion()
	if order, err := resourceversion.CompareResourceVersion(version, o.version); err == nil && order < 0 {
		return
	}
	o.object, o.version = object, version
	if deleted {
		o.object = nil
	}
}

// problems has the latest errors of the watch and of writes. It logs errors of writes only while the watch has no
// error. If the API server does not answer, the watch and the writes fail, and one message is enough.
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
