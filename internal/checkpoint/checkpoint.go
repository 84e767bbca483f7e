// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint stores, in one small file, state that neither the runtime nor the kernel has after a restart.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// maxSize bounds the size of the file that is read. 500 containers need about 100 KiB.
const maxSize = 16 << 20

// Changes are the classes of containers and pods that were changed after their creation, by the runtime's ID. The file is valid
// for one boot of the machine, like IDs and kernel state.
type Changes struct {
	path, bootID string

	writing sync.Mutex // serializes Set; is locked before mu
	mu      sync.Mutex // guards byID; never held during I/O, because hooks wait for it
	byID    map[string][]classes.Assignment
}

type content struct {
	BootID  string                          `json:"bootID"`
	Changes map[string][]classes.Assignment `json:"changes"`
}

// Open reads the checkpoint. A file that is missing, damaged or of another boot counts as empty; the latter two are logged.
func Open(path, bootID string, log *slog.Logger) *Changes {
	c := &Changes{path: path, bootID: bootID, byID: map[string][]classes.Assignment{}}
	saved, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		log.Warn("cannot read the checkpoint of changed classes; containers return to the classes of their creation",
			"path", path, "error", err)
	case saved.BootID != bootID:
		log.Info("the checkpoint of changed classes is of another boot and is ignored", "path", path)
	case saved.Changes != nil:
		c.byID = saved.Changes
	}
	return c
}

func read(path string) (saved content, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return saved, err
	}
	if info.Size() > maxSize {
		return saved, fmt.Errorf("its %d bytes are more than the maximum of %d", info.Size(), maxSize)
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

// Set replaces the changed assignments of an ID, and writes the file. On an error nothing is changed.
func (c *Changes) Set(id string, changed []classes.Assignment) error {
	c.writing.Lock()
	defer c.writing.Unlock()

	before, all := c.replace(id, changed)
	if err := c.write(all); err != nil {
		c.replace(id, before)
		return fmt.Errorf("write the checkpoint of changed classes: %w", err)
	}
	return nil
}

func (c *Changes) replace(id string, changed []classes.Assignment) (before []classes.Assignment, all map[string][]classes.Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()

	before = c.byID[id]
	if len(changed) > 0 {
		c.byID[id] = changed
	} else {
		delete(c.byID, id)
	}
	return before, maps.Clone(c.byID)
}

// Forget removes an ID. The file keeps it until the next Set, without effect.
func (c *Changes) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	delete(c.byID, id)
}

// Keep removes every ID for which live returns false.
func (c *Changes) Keep(live func(id string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	maps.DeleteFunc(c.byID, func(id string, _ []classes.Assignment) bool { return !live(id) })
}

// write replaces the file atomically. It needs no fsync: after a crash of the machine the boot ID differs, and the file is
// ignored.
func (c *Changes) write(changes map[string][]classes.Assignment) error {
	data, err := json.Marshal(content{BootID: c.bootID, Changes: changes})
	if err != nil {
		return err
	}

	unfinished := c.path + ".new" // only one process uses the directory
	err = os.WriteFile(unfinished, data, 0o600)
	if err == nil {
		err = os.Rename(unfinished, c.path)
	}
	if err != nil {
		_ = os.Remove(unfinished) // the next write replaces it as well
	}
	return err
}
