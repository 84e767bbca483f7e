// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Previewer is a classes.Backend that can tell what its status would be, without writing anything.
type Previewer interface {
	// Preview is the status that the backend would have if config were the live one.
	Preview(ctx context.Context, config classes.BackendConfig) (classes.BackendStatus, error)
}

// Check says whether a set of class files could be made live on this machine, and what would be offered. It changes
// nothing. A resource that the machine does not have is no error, but unavailable in what is returned.
func (n *Node) Check(ctx context.Context, source classes.FileSet) ([]ResourceStatus, error) {
	if source.Err != nil {
		return nil, source.Err
	}
	if err := n.changing.take(ctx); err != nil {
		return nil, err
	}
	defer n.changing.leave()
	next, err := n.check(ctx, source.Config)
	if err != nil {
		return nil, err
	}
	resources := make([]ResourceStatus, 0, len(source.Config.Resources))
	for _, resource := range source.Config.Resources {
		status, err := preview(ctx, next[resource.Name], resource)
		if err != nil {
			return nil, err
		}
		resources = append(resources, status)
	}
	return resources, nil
}

func preview(ctx context.Context, b backend, resource classes.ResourceConfig) (ResourceStatus, error) {
	status := ResourceStatus{Offer: classes.Offer{Resource: resource.Resource, Unavailable: b.unavailable}}
	if b.unavailable != nil {
		return status, nil
	}
	previewer, ok := b.Backend.(Previewer)
	if !ok {
		return status, nil
	}
	would, err := previewer.Preview(ctx, resource.Backend)
	if err != nil {
		return status, err
	}
	status.Conditions, status.Degraded = would.Conditions, would.Degraded
	return status, nil
}
