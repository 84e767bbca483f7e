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
	"github.com/qos-nri/qos-nri-plugin/internal/tracing"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// readInterval is how often the class files are read. A watch would gain little, because the kubelet takes up to a
// minute to update a mounted ConfigMap. A watch would also miss changes, because the kubelet replaces a symbolic link.
const readInterval = 5 * time.Second

// settleTime is the time after which changed files are read again before they are applied. A program may still be writing
// the files, and a half-written file may also be a valid class file.
const settleTime = 200 * time.Millisecond

// retryTime is the time after which class files are applied again if the machine refused them.
const retryTime = 15 * time.Second

// classFiles keeps the configuration of a node up to date with the class files.
type classFiles struct {
	path   string
	kinds  []classes.Kind
	read   func(path string) ([]byte, error)
	node   *node.Node
	log    *slog.Logger
	tracer *tracing.Exporter
	// onApplied is called after each change of the configuration. It may be nil.
	onApplied func()
	// current is the hash of the files that were last applied or refused. `next` is the hash of newer
	// files that were read once and not applied yet.
	current, next string
	// refusedAt is the time when the current files could not be applied to the machine, although the files themselves are
	// valid. It is zero if they were applied, or if they are not valid.
	refusedAt time.Time
	// loggedErr is the last error that was logged, so that each error is logged once.
	loggedErr string
}

func (a *Agent) newClassFiles(n *node.Node) *classFiles {
	return &classFiles{path: a.options.Config, kinds: a.kinds, read: config.HostFiles(a.options.HostRoot), node: n, log: a.log}
}

// load reads and applies the class files. If that fails, the previous configuration stays live. Without a previous
// configuration, containers that request a class are refused. The agent does not end, because containers would then
// start without their classes.
func (f *classFiles) load(ctx context.Context) {
	f.apply(ctx, config.Read(f.path, f.kinds, f.read))
}

func (f *classFiles) apply(ctx context.Context, files classes.FileSet) {
	f.current, f.next, f.refusedAt = files.Hash, "", time.Time{}
	began := time.Now()
	err := f.node.Configure(ctx, files)
	f.tracer.Record(tracing.Span{Name: "ApplyClassFiles", Began: began, Took: time.Since(began), Err: err,
		Attributes: []tracing.Attribute{{Key: "qos.config.hash", Value: files.Hash}}})
	if err != nil {
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

// logError logs each problem of the class files. It logs nothing if the error is the same as the last one.
func (f *classFiles) logError(err error) {
	if f.loggedErr == err.Error() {
		return
	}
	f.loggedErr = err.Error()
	for _, problem := range classes.SplitErrors(err) {
		f.log.Error("class files are not applied", "problem", problem)
	}
}

// follow applies the class files after each change. It also applies them at each hangup signal, even if they have not
// changed, because devices may have been added or removed.
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

// poll reads the class files, and applies new content when two polls in a row have read it. The first of these polls
// returns a channel, which receives a value when poll must be called for the second time. Content that the machine has
// refused is applied again after retryTime.
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
