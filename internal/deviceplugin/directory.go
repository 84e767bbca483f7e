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

// directory watches kubelet's directories. When kubelet starts, it removes all sockets there and creates its own
// socket.
type directory struct {
	root    string
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil if inotify is not available
	failed  bool

	// kubeletRestarted receives a value when kubelet's socket or directory was recreated.
	kubeletRestarted chan struct{}
	// socketRemoved is called when one of the publisher's sockets was removed. `podResources` is called when kubelet
	// starts to serve the pod-resources API.
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

// needsPoll reports whether changes in the directories may cause no event, so that the caller must poll.
func (d *directory) needsPoll() bool { return d.watcher == nil || d.failed }

// watch watches the directories that exist now. It must be called again later, because a directory that was recreated
// is not watched.
func (d *directory) watch() {
	if d.watcher == nil {
		return
	}

	failed := false
	for _, dir := range []string{d.root, filepath.Join(d.root, pluginsDirectory), filepath.Join(d.root, podResourcesDirectory)} {
		err := d.watcher.Add(dir)
		// A missing or unreadable directory is no error here: the code that uses the directory reports it, and the watch
		// of d.root reports its creation. ErrClosed means that the process is ending.
		if err != nil && !errors.Is(err, fsnotify.ErrClosed) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			failed = true
			d.fail(err)
		}
	}
	d.failed = failed
}

func (d *directory) fail(err error) {
	if !d.failed {
		d.log.Warn("cannot watch kubelet's directory, so it is checked every 10 s; "+
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
			d.socketRemoved() // events may have been lost, so all sockets are checked
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
