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

// directory watches kubelet's directories. Kubelet removes all sockets at its start, and then makes its own.
type directory struct {
	root    string
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil if there is none to be had
	failed  bool

	// reborn tells that kubelet, or its directory, is there anew; removed and listing are called when a socket of ours is
	// removed, and when kubelet can be asked again.
	reborn           chan struct{}
	removed, listing func()
}

func newDirectory(root string, log *slog.Logger, removed, listing func()) *directory {
	d := &directory{root: root, log: log, reborn: make(chan struct{}, 1), removed: removed, listing: listing}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		d.complain(err)
		return d
	}
	d.watcher = watcher
	return d
}

// blind is whether changes are not seen, and have to be looked for.
func (d *directory) blind() bool { return d.watcher == nil || d.failed }

// watch has those directories watched that are there now. One that is made anew is another one.
func (d *directory) watch() {
	if d.watcher == nil {
		return
	}
	failed := false
	for _, dir := range []string{d.root, filepath.Join(d.root, pluginsDirectory), filepath.Join(d.root, podResourcesDirectory)} {
		err := d.watcher.Add(dir)
		// What cannot be entered or is not there is told by who works in it; the one above it is watched.
		// A watcher is closed when all ends.
		if err != nil && !errors.Is(err, fsnotify.ErrClosed) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			failed = true
			d.complain(err)
		}
	}
	d.failed = failed
}

func (d *directory) complain(err error) {
	if !d.failed {
		d.log.Warn("cannot watch kubelet's directory, and look at it every 10 s instead; "+
			"raise fs.inotify.max_user_watches and fs.inotify.max_user_instances", "directory", d.root, "err", err)
	}
	d.failed = true
}

// run passes on what happens, until ctx ends.
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
			d.pass(event)
		case _, open := <-d.watcher.Errors:
			if !open {
				return
			}
			d.removed() // events may have been: look at everything
		}
	}
}

func (d *directory) pass(event fsnotify.Event) {
	dir, name := filepath.Split(event.Name)
	dir = filepath.Clean(dir)
	switch {
	case dir == d.root && (name == pluginsDirectory || name == podResourcesDirectory) && event.Has(fsnotify.Create),
		dir == filepath.Join(d.root, pluginsDirectory) && name == kubeletSocket && event.Has(fsnotify.Create):
		poke(d.reborn)
	case dir == filepath.Join(d.root, podResourcesDirectory) && name == kubeletSocket && event.Has(fsnotify.Create):
		d.listing()
	case ourSocket.MatchString(name) && event.Op&(fsnotify.Remove|fsnotify.Rename) != 0:
		d.removed()
	}
}

// poke wakes a loop that looks at everything when it is woken.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
