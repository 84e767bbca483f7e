// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"golang.org/x/sync/semaphore"

	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// key is the key of the claims in the memory.
const key = "claims"

// Follower applies the classes that claims request for volumes. It is safe for concurrent use.
type Follower struct {
	reconciler *reconcile.Reconciler
	kinds      []classes.Kind
	memory     classes.Memory
	log        *slog.Logger

	setting *semaphore.Weighted // serializes SetClaims
	live    Claims              // the semaphore guards it
}

// New returns a Follower. It loads the claims that an earlier process of the plugin has saved. The next configuration of the reconciler
// applies them.
func New(reconciler *reconcile.Reconciler, kinds []classes.Kind, memory classes.Memory, log *slog.Logger) *Follower {
	f := &Follower{reconciler: reconciler, kinds: kinds, memory: memory, log: log, setting: semaphore.NewWeighted(1)}
	err := f.load()
	resource, invalid := f.live.Resource(kinds)
	if err != nil || invalid != nil {
		log.Warn("ignoring the saved classes of claims until qos-kubelet-shim sends the claims again", "error", cmp.Or(err, invalid))
	}
	reconciler.Restore(resource, f.live.Volumes)
	return f
}

func (f *Follower) load() error {
	data := f.memory.Load()[key]
	if data == nil {
		return nil
	}
	return json.Unmarshal(data, &f.live)
}

// SetClaims applies the classes of the claims, saves the claims for the next start of the plugin, and enforces the
// classes on the volumes of this node. It replaces all earlier claims. If the classes are invalid, SetClaims returns an
// error that wraps classes.ErrBadRequest, and the earlier claims stay. If a class cannot be enforced on a volume,
// SetClaims returns no error: the volume is reported as refused, and the reconciler retries.
func (f *Follower) SetClaims(ctx context.Context, claims Claims) error {
	resource, err := claims.Resource(f.kinds)
	if err != nil {
		return fmt.Errorf("%w: %w", classes.ErrBadRequest, err)
	}
	if err := f.setting.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer f.setting.Release(1)

	redefined := func(class string) bool { return f.live.Limits[class] != claims.Limits[class] }
	moved, err := f.reconciler.Follow(ctx, resource, claims.Volumes, redefined)
	if err != nil {
		return err
	}
	f.live = claims
	f.log.Info("classes of claims applied", "classes", len(claims.Limits), "volumes", len(claims.Volumes), "moved", moved)
	if err := f.save(); err != nil {
		f.log.Warn("cannot save the claims; after a restart, volumes have their former classes until qos-kubelet-shim sends the claims again",
			"error", err)
	}
	return nil
}

func (f *Follower) save() error {
	data, err := json.Marshal(f.live)
	if err != nil {
		return err
	}
	return f.memory.Save(map[string][]byte{key: data})
}
