// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint stores, in one file, the classes that updates have assigned to running containers and pods, the originals of
// containers, and data by name, e.g. of the backends. The plugin reads the file when it restarts, because neither the runtime nor the kernel
// reports these data.
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

// maxSize limits the size of the file that is read. The changes of 500 containers take about 100 KiB, and 1000 claims
// take up to 600 KiB.
const maxSize = 16 << 20

// Changes stores the classes that updates have assigned to containers and pods, and the originals of containers, by their IDs in the
// runtime. It also stores other data by name. The IDs and the state of the kernel do not survive a reboot, so a checkpoint file is valid
// only for one boot of the machine.
type Changes struct {
	path, bootID string

	writing   sync.Mutex // serializes Set, SetOriginals and SetMemory; it is locked before mu
	mu        sync.Mutex // guards the fields below; no caller holds it during I/O, because hooks wait for it
	byID      map[string][]classes.Assignment
	originals map[string]classes.Adjustment
	memory    map[string]json.RawMessage // the data by key
}

type content struct {
	BootID    string                          `json:"bootID"`
	Changes   map[string][]classes.Assignment `json:"changes"`
	Originals map[string]classes.Adjustment   `json:"originals,omitempty"`
	Claims    json.RawMessage                 `json:"claims,omitempty"` // of earlier versions
	Memory    map[string]json.RawMessage      `json:"memory,omitempty"`
}

// Open reads the checkpoint. If the file is missing, damaged, or from another boot, Open returns an empty checkpoint.
// Open logs a damaged file and a file from another boot.
func Open(path, bootID string, log *slog.Logger) *Changes {
	c := &Changes{
		path: path, bootID: bootID,
		byID: map[string][]classes.Assignment{}, originals: map[string]classes.Adjustment{}, memory: map[string]json.RawMessage{},
	}
	saved, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		log.Warn("cannot read the checkpoint of changed classes; containers return to the classes that they were created with",
			"path", path, "error", err)
	case saved.BootID != bootID:
		log.Info("the checkpoint of changed classes was written before the last boot, so it is ignored", "path", path)
	default:
		if saved.Claims != nil {
			c.memory["claims"] = saved.Claims
		}
		maps.Copy(c.memory, saved.Memory)
		maps.Copy(c.originals, saved.Originals)
		if saved.Changes != nil {
			c.byID = saved.Changes
		}
	}
	return c
}

func read(path string) (saved content, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return saved, err
	}
	if info.Size() > maxSize {
		return saved, fmt.Errorf("the file has %d bytes, and the maximum is %d", info.Size(), maxSize)
	}

	data, err := os.ReadFile(path)
	if err != nil {
		return saved, err
	}
	err = json.Unmarshal(data, &saved)
	return saved, err
}

// Get returns the changed assignments of the container or sandbox with this ID.
func (c *Changes) Get(id string) ([]classes.Assignment, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	changed, ok := c.byID[id]
	return changed, ok
}

// Set replaces the assignments that are stored for an ID, and writes the file. If writing fails, Set changes nothing.
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

// Originals returns the originals of a container that were saved.
func (c *Changes) Originals(id string) (classes.Adjustment, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	originals, saved := c.originals[id]
	return originals, saved
}

// SetOriginals replaces the originals of a container. If the file cannot be written, it returns an error, but keeps the new originals in
// memory.
func (c *Changes) SetOriginals(id string, originals classes.Adjustment) error {
	if err := c.save(func() { c.originals[id] = originals }); err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	return nil
}

// Memory returns the JSON that was saved, by key.
func (c *Changes) Memory() map[string][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string][]byte, len(c.memory))
	for key, data := range c.memory {
		all[key] = data
	}
	return all
}

// SetMemory replaces the JSON of the keys in the map. nil removes a key. If the file cannot be written, it returns an error, but keeps
// the new JSON in memory.
func (c *Changes) SetMemory(changed map[string][]byte) error {
	err := c.save(func() {
		for key, data := range changed {
			if c.memory[key] = data; data == nil {
				delete(c.memory, key)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	return nil
}

// save makes a change, and writes the file.
func (c *Changes) save(change func()) error {
	c.writing.Lock()
	defer c.writing.Unlock()

	c.mu.Lock()
	change()
	all := c.content()
	c.mu.Unlock()
	return c.write(all)
}

// content returns the content that is to be written to the file. The caller holds mu.
func (c *Changes) content() content {
	return content{BootID: c.bootID, Changes: maps.Clone(c.byID), Originals: maps.Clone(c.originals), Memory: maps.Clone(c.memory)}
}

func (c *Changes) replace(id string, changed []classes.Assignment) (before []classes.Assignment, all content) {
	c.mu.Lock()
	defer c.mu.Unlock()

	before = c.byID[id]
	if len(changed) > 0 {
		c.byID[id] = changed
	} else {
		delete(c.byID, id)
	}
	return before, c.content()
}

// Forget removes an ID from memory. The file keeps the ID until it is written again. If the plugin restarts before
// that, Open reads the ID again, and Keep removes it.
func (c *Changes) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	delete(c.byID, id)
	delete(c.originals, id)
}

// Keep removes each ID for which `live` returns false.
func (c *Changes) Keep(live func(id string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	maps.DeleteFunc(c.byID, func(id string, _ []classes.Assignment) bool { return !live(id) })
	maps.DeleteFunc(c.originals, func(id string, _ classes.Adjustment) bool { return !live(id) })
}

// write replaces the file atomically. It does not need fsync: after a crash of the machine, Open ignores the file,
// because the boot ID has changed.
func (c *Changes) write(all content) error {
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}

	unfinished := c.path + ".new" // no other process uses the directory, so the name is unique
	err = os.WriteFile(unfinished, data, 0o600)
	if err == nil {
		err = os.Rename(unfinished, c.path)
	}
	if err != nil {
		_ = os.Remove(unfinished) // if this fails, the next write replaces the file
	}
	return err
}
