// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/claims"
	"github.com/qos-nri/qos-nri-plugin/internal/tracing"
)

// refreshing is the Node of the node API. It calls refresh after each SetClaims, because the new classes may need other
// NRI hooks. It also records a span for each change of classes.
type refreshing struct {
	*node.Node
	tracer *tracing.Exporter
	// The function refresh registers the plugin again if the plugin needs other hooks.
	refresh func()
}

// SetClaims puts the classes of the claims in force.
func (r refreshing) SetClaims(ctx context.Context, claimed claims.Claims) error {
	defer r.refresh()
	return r.Node.SetClaims(ctx, claimed)
}
