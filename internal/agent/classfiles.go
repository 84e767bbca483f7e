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

// readInterval is how often class files are read. The kubelet takes up to a minute for a mounted ConfigMap, and then swaps a symbolic
// link, so that watching files gains little and misses some changes.
const readInterval = 5 * time.Second

// settleTime is after how long changed files are read again before they are applied. They may be half written, and half a file may be
// a class file, too.
const settleTime = 200 * time.Millisecond

// retryTime is after how long class files that the machine refused are applied again.
const retryTime = 15 * time.Second

// classFiles keeps a node's configuration in step with the class files.
type classFiles struct {
	path  string
	kinds []classes.Kind
	read  func(path string) ([]byte, error)
	node  *node.Node
	log   *slog.Logger
	// onApplied is called after each change of configuration; may be nil.
	onApplied func()
	// current is the hash of the files that were applied or refused last; next that of files that were read since, and differ.
	current, next string
	// refusedAt is when the machine refused files without errors; zero when it did not.
	refusedAt time.Time
	// loggedErr is the last error, to log it once.
	loggedErr string
}

func (a *Agent) newClassFiles(n *node.Node) *classFiles {
	return &classFiles{path: a.options.Config, kinds: a.kinds, read: config.HostFiles(a.options.HostRoot), node: n, log: a.log}
}

// load reads and applies the class files. Errors do not end the agent: without it containers would start without the classes that
// they request, while a running agent keeps the configuration that it had, or refuses them with the reason.
func (f *classFiles) load(ctx context.Context) {
	f.apply(ctx, config.Read(f.path, f.kinds, f.read))
}

func (f *classFiles) apply(ctx context.Context, files classes.FileSet) {
	f.current, f.next, f.refusedAt = files.Hash, "", time.Time{}
	if err := f.node.Configure(ctx, files); err != nil {
		if files.Err == nil {
			f.refusedAt = time.Now()
		}
		f.logError(err)
		return
	}

	f.loggedErr = ""
	if f.onApplied != nil {
		f.onApplied()
	}
	moved := f.node.Reconcile(ctx)
	f.log.Info("class files applied", "files", files.Files, "hash", files.Hash, "moved", moved)
	for _, r := range f.node.Status().Resources {
		if r.Unavailable != nil {
			f.log.Warn("resource unavailable", "resource", r.Name, "reason", r.Unavailable.Reason, "message", r.Unavailable.Message)
		}
	}
	if len(files.Files) == 0 {
		f.log.Warn("no class files found, so no class is offered", "directory", f.path)
	}
}

// logError logs each problem of class files, once.
func (f *classFiles) logError(err error) {
	if f.loggedErr == err.Error() {
		return
	}
	f.loggedErr = err.Error()
	for _, problem := range classes.SplitErrors(err) {
		f.log.Error("class files are not applied", "problem", problem)
	}
}

// follow applies the class files after changes, and at each hangup also without one: devices may have been added or removed.
func (f *classFiles) follow(ctx context.Context, hangup <-chan os.Signal) error {
	ticker := time.NewTicker(readInterval)
	defer ticker.Stop()

	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			f.load(ctx)
		case <-ticker.C:
			settled = f.poll(ctx)
		case <-settled:
			settled = f.poll(ctx)
		}
	}
}

// poll applies files that have changed since they were applied, but not since they were read last. For files that have just changed
// it returns when to poll again.
func (f *classFiles) poll(ctx context.Context) (again <-chan time.Time) {
	files := config.Read(f.path, f.kinds, f.read)
	switch files.Hash {
	case f.current:
		f.next = ""
		if !f.refusedAt.IsZero() && time.Since(f.refusedAt) > retryTime {
			f.apply(ctx, files)
		}
		return nil
	case f.next:
		f.apply(ctx, files)
		return nil
	}
	f.next = files.Hash
	return time.After(settleTime)
}
