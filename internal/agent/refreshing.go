// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// refreshing is a Node that calls refresh after each SetClaims, because the new classes may need other hooks.
type refreshing struct {
	*node.Node
	// refresh registers the plugin again if it needs other hooks.
	refresh func()
}

// SetClaims makes the classes that claims request live.
func (r refreshing) SetClaims(ctx context.Context, claims classes.Claims) error {
	defer r.refresh()
	return r.Node.SetClaims(ctx, claims)
}
