// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// lookInterval is how often class files are looked at. A mounted ConfigMap takes the kubelet up to a minute, and is then
// swapped by a symbolic link, so that watching files gains little and misses some.
const lookInterval = 5 * time.Second

// settleTime is after how long files that changed are looked at again before they are applied. Somebody may be writing them, and half a
// file can be a class file, too.
const settleTime = 200 * time.Millisecond

// retryTime is after how long the machine is asked again for what it did not take: somebody may have been in the way.
const retryTime = 15 * time.Second

// classFiles keeps a node's configuration in step with the files.
type classFiles struct {
	path  string
	kinds []classes.Kind
	read  func(path string) ([]byte, error)
	node  *node.Node
	log   *slog.Logger
	// applied is called after each change of configuration; may be nil.
	applied func()
	seen    string // hash of what was applied, or refused, last
	changed string // hash of what was read last, when it is another
	// refused is when, and why, the machine did not take what was right by itself; zero when it did.
	refused time.Time
	said    string
}

func (a *Agent) newClassFiles(n *node.Node) *classFiles {
	return &classFiles{path: a.options.Config, kinds: a.kinds, read: config.HostFiles(a.options.HostRoot), node: n, log: a.log}
}

// load applies the class files. Wrong files do not end the agent: containers that ask for classes would then start
// without them, while a running agent keeps what it had, or refuses them and says why.
func (f *classFiles) load(ctx context.Context) {
	f.apply(ctx, config.Read(f.path, f.kinds, f.read))
}

func (f *classFiles) apply(ctx context.Context, source classes.FileSet) {
	f.seen, f.changed, f.refused = source.Hash, "", time.Time{}
	if err := f.node.Configure(ctx, source); err != nil {
		if source.Err == nil {
			f.refused = time.Now()
		}
		if f.said != err.Error() {
			f.said = err.Error()
			for _, problem := range classes.SplitErrors(err) {
				f.log.Error("class files are not applied", "problem", problem)
			}
		}
		return
	}
	f.said = ""
	if f.applied != nil {
		f.applied()
	}
	mended := f.node.Reconcile(ctx)
	f.log.Info("class files applied", "files", source.Files, "hash", source.Hash, "broughtAlong", mended)
	for _, r := range f.node.Status().Resources {
		if r.Unavailable != nil {
			f.log.Warn("a resource is not on this machine", "resource", r.Name, "reason", r.Unavailable.Reason, "message", r.Unavailable.Message)
		}
	}
	if len(source.Files) == 0 {
		f.log.Warn("there are no class files, so nothing is offered", "directory", f.path)
	}
}

// follow applies the class files when they have changed, and at each hangup also when not: devices may have come or gone.
func (f *classFiles) follow(ctx context.Context, hangup <-chan os.Signal) error {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			f.load(ctx)
		case <-ticker.C:
			settled = f.look(ctx)
		case <-settled:
			settled = f.look(ctx)
		}
	}
}

// look applies what was the same the last time, and otherwise says when to look again.
func (f *classFiles) look(ctx context.Context) (again <-chan time.Time) {
	source := config.Read(f.path, f.kinds, f.read)
	switch source.Hash {
	case f.seen:
		f.changed = ""
		if !f.refused.IsZero() && time.Since(f.refused) > retryTime {
			f.apply(ctx, source)
		}
		return nil
	case f.changed:
		f.apply(ctx, source)
		return nil
	}
	f.changed = source.Hash
	return time.After(settleTime)
}
