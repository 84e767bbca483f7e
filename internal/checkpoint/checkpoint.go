// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint keeps what neither the runtime nor the kernel can tell after a restart, in one small file.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// maxSize bounds what is read back; 500 containers take about 100 KiB.
const maxSize = 16 << 20

// Changes are the classes of containers and pods that were changed after their creation, by the runtime's ID.
// The file belongs to one boot of the machine: IDs and kernel state do not outlive it.
type Changes struct {
	path, bootID string

	writing sync.Mutex // serializes Set, and is taken before mu
	mu      sync.Mutex // guards byID; never held for I/O, since hooks wait for it
	byID    map[string][]classes.Assignment
}

type content struct {
	BootID  string                          `json:"bootID"`
	Changes map[string][]classes.Assignment `json:"changes"`
}

// Open reads the checkpoint. One that is missing, damaged or of another boot counts as empty, and is said in the log.
func Open(path, bootID string, log *slog.Logger) *Changes {
	c := &Changes{path: path, bootID: bootID, byID: map[string][]classes.Assignment{}}
	saved, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		log.Warn("the checkpoint of changed classes cannot be read; containers go back to the classes that they were created in",
			"path", path, "error", err)
	case saved.BootID != bootID:
		log.Info("the checkpoint of changed classes is from another boot", "path", path)
	case saved.Changes != nil:
		c.byID = saved.Changes
	}
	return c
}

func read(path string) (content, error) {
	var saved content
	info, err := os.Stat(path)
	if err != nil {
		return saved, err
	}
	if info.Size() > maxSize {
		return saved, fmt.Errorf("%d bytes are more than a checkpoint can have", info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return saved, err
	}
	err = json.Unmarshal(data, &saved)
	return saved, err
}

// Get returns the changed assignments of an ID.
func (c *Changes) Get(id string) ([]classes.Assignment, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, ok := c.byID[id]
	return changed, ok
}

// Set replaces the changed assignments of an ID and has written them when it returns. On error they are as before.
func (c *Changes) Set(id string, changed []classes.Assignment) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	before := c.replace(id, changed)
	c.mu.Lock()
	next := maps.Clone(c.byID)
	c.mu.Unlock()
	if err := c.write(next); err != nil {
		c.replace(id, before)
		return fmt.Errorf("write down the changed class: %w", err)
	}
	return nil
}

func (c *Changes) replace(id string, changed []classes.Assignment) (before []classes.Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.byID[id]
	if len(changed) > 0 {
		c.byID[id] = changed
	} else {
		delete(c.byID, id)
	}
	return before
}

// Forget drops an ID. The file follows at the next Set; until then an ID that is gone does no harm in it.
func (c *Changes) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, id)
}

// Keep drops every ID that live does not know.
func (c *Changes) Keep(live func(id string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.byID, func(id string, _ []classes.Assignment) bool { return !live(id) })
}

// write replaces the file: a reader, or a crash at any moment, sees the old content or the new.
func (c *Changes) write(changes map[string][]classes.Assignment) error {
	data, err := json.Marshal(content{BootID: c.bootID, Changes: changes})
	if err != nil {
		return err
	}
	// One name, since only one instance has the directory: nothing piles up when the process is killed here.
	file, err := os.OpenFile(c.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), c.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return syncDir(filepath.Dir(c.path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
