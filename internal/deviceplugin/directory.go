// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// directory watches kubelet's directories. At its start kubelet removes all sockets and then makes its own.
type directory struct {
	root    string
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil if inotify is not available
	failed  bool

	// kubeletRestarted receives a value when kubelet's socket or directory was recreated.
	kubeletRestarted chan struct{}
	// socketRemoved is called when one of our sockets was removed. podResources is called when kubelet serves the pod-resources
	// API.
	socketRemoved, podResources func()
}

func newDirectory(root string, log *slog.Logger, socketRemoved, podResources func()) *directory {
	d := &directory{
		root: root, log: log, kubeletRestarted: make(chan struct{}, 1), socketRemoved: socketRemoved, podResources: podResources,
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		d.fail(err)
		return d
	}
	d.watcher = watcher
	return d
}

// needsPoll reports whether changes cause no event.
func (d *directory) needsPoll() bool { return d.watcher == nil || d.failed }

// watch adds the directories that exist now. It is called again because a recreated directory has no watch.
func (d *directory) watch() {
	if d.watcher == nil {
		return
	}

	failed := false
	for _, dir := range []string{d.root, filepath.Join(d.root, pluginsDirectory), filepath.Join(d.root, podResourcesDirectory)} {
		err := d.watcher.Add(dir)
		// A missing or unreadable directory is reported by its users, and its parent is watched. The watcher is closed at the end.
		if err != nil && !errors.Is(err, fsnotify.ErrClosed) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			failed = true
			d.fail(err)
		}
	}
	d.failed = failed
}

func (d *directory) fail(err error) {
	if !d.failed {
		d.log.Warn("cannot watch kubelet's directory, which is checked every 10 s instead; "+
			"raise fs.inotify.max_user_watches and fs.inotify.max_user_instances", "directory", d.root, "err", err)
	}
	d.failed = true
}

func (d *directory) run(ctx context.Context) {
	if d.watcher == nil {
		return
	}
	defer func() { _ = d.watcher.Close() }()

	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-d.watcher.Events:
			if !open {
				return
			}
			d.handle(event)
		case _, open := <-d.watcher.Errors:
			if !open {
				return
			}
			d.socketRemoved() // events may be lost: check all sockets
		}
	}
}

func (d *directory) handle(event fsnotify.Event) {
	dir, name := filepath.Split(event.Name)
	dir = filepath.Clean(dir)
	switch {
	case dir == d.root && (name == pluginsDirectory || name == podResourcesDirectory) && event.Has(fsnotify.Create),
		dir == filepath.Join(d.root, pluginsDirectory) && name == kubeletSocket && event.Has(fsnotify.Create):
		wake(d.kubeletRestarted)
	case dir == filepath.Join(d.root, podResourcesDirectory) && name == kubeletSocket && event.Has(fsnotify.Create):
		d.podResources()
	case ourSocket.MatchString(name) && event.Op&(fsnotify.Remove|fsnotify.Rename) != 0:
		d.socketRemoved()
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
