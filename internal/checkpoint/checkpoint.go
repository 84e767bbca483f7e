// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint stores data in one file: the classes that updates have assigned to running containers and pods,
// the values that classes have replaced in containers (originals), and data by name, e.g. of the backends. The plugin
// reads the file when it restarts, because neither the runtime nor the kernel reports these data.
package checkpoint

import (
	"bytes"
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

const (
	// maxSize limits the size of the file that is read. The changes of 500 containers take about 100 KiB, and 1000 claims
	// take up to 600 KiB.
	maxSize = 16 << 20
	// `slack` is the number of bytes that may be appended to a small file before the file is written anew.
	slack = 64 << 10
)

// Changes stores the classes that updates have assigned to containers and pods, and the originals of containers, by their IDs in the
// runtime. It also stores other data by name. The IDs and the state of the kernel do not survive a reboot, so a checkpoint file is valid
// only for one boot of the machine.
//
// The first line of the file has all data from the time when the file was last written as a whole. Each later line has
// one change. A line is appended for each change, because this is fast, and a start hook waits for it.
type Changes struct {
	path, bootID string

	writing sync.Mutex // serializes the methods that write the file, and guards the next two fields; it is locked before mu
	// `size` is the size of the file. `room` is the number of bytes that may still be appended to it. If `room` is 0,
	// the next change writes the whole file.
	size, room int64

	mu        sync.Mutex // guards the fields below; no caller holds it during I/O, because hooks wait for it
	byID      map[string][]classes.Assignment
	originals map[string]classes.Adjustment
	memory    map[string]json.RawMessage // the data by key
}

// content is the first line of a file.
type content struct {
	BootID string `json:"bootID"`
	change
}

// change is a later line of a file. A value of null means that the entry was removed.
type change struct {
	Changes   map[string][]classes.Assignment `json:"changes,omitempty"`
	Originals map[string]classes.Adjustment   `json:"originals,omitempty"`
	Memory    map[string]json.RawMessage      `json:"memory,omitempty"`
}

// Open reads the checkpoint. If the file is missing, damaged, or from another boot, Open returns an empty checkpoint.
// Open logs a damaged file and a file from another boot. It does not read an unfinished last line.
func Open(path, bootID string, log *slog.Logger) *Changes {
	c := &Changes{
		path: path, bootID: bootID,
		byID: map[string][]classes.Assignment{}, originals: map[string]classes.Adjustment{}, memory: map[string]json.RawMessage{},
	}
	saved, later, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		log.Warn("cannot read the checkpoint of changed classes; containers return to the classes that they were created with",
			"path", path, "error", err)
	case saved.BootID != bootID:
		log.Info("the checkpoint of changed classes was written before the last boot, so it is ignored", "path", path)
	default:
		for _, change := range append([]change{saved.change}, later...) {
			c.make(change)
		}
	}
	return c
}

// read returns the lines of a file, but not a last line without an end, whose writer was killed.
func read(path string) (first content, later []change, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return first, nil, err
	}
	if info.Size() > maxSize {
		return first, nil, fmt.Errorf("the file has %d bytes, and the maximum is %d", info.Size(), maxSize)
	}

	data, err := os.ReadFile(path)
	if err != nil {
		return first, nil, err
	}
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	if err := json.Unmarshal(line, &first); err != nil {
		return first, nil, err
	}
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			return first, later, nil
		}
		var one change
		if err := json.Unmarshal(line, &one); err != nil {
			return first, nil, err
		}
		later, rest = append(later, one), after
	}
}

// make makes a change in memory. The caller holds mu, unless no other goroutine has `c` yet.
func (c *Changes) make(change change) {
	for id, changed := range change.Changes {
		if c.byID[id] = changed; len(changed) == 0 {
			delete(c.byID, id)
		}
	}
	maps.Copy(c.originals, change.Originals)
	for key, data := range change.Memory {
		if c.memory[key] = data; data == nil || string(data) == "null" {
			delete(c.memory, key)
		}
	}
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

	before, _ := c.Get(id)
	if err := c.save(change{Changes: map[string][]classes.Assignment{id: changed}}); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.make(change{Changes: map[string][]classes.Assignment{id: before}})
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
	return c.set(change{Originals: map[string]classes.Adjustment{id: originals}})
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
	change := change{Memory: map[string]json.RawMessage{}}
	for key, data := range changed {
		change.Memory[key] = data
	}
	return c.set(change)
}

func (c *Changes) set(change change) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.save(change); err != nil {
		return fmt.Errorf("write the checkpoint: %w", err)
	}
	return nil
}

// save makes a change, and writes it. The caller holds `writing`.
func (c *Changes) save(change change) error {
	line, err := json.Marshal(change)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	c.mu.Lock()
	c.make(change)
	c.mu.Unlock()

	if int64(len(line)) <= c.room && c.appendLine(line) == nil {
		c.size, c.room = c.size+int64(len(line)), c.room-int64(len(line))
		return nil
	}
	return c.write()
}

// appendLine appends a line to the file. If it fails, it removes what it wrote, and the next write replaces the file.
func (c *Changes) appendLine(line []byte) (err error) {
	file, err := os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err = file.Write(line); err != nil {
		err = errors.Join(err, file.Truncate(c.size))
	}
	return err
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
func (c *Changes) write() error {
	c.room = 0
	c.mu.Lock()
	all := change{Changes: maps.Clone(c.byID), Originals: maps.Clone(c.originals), Memory: maps.Clone(c.memory)}
	c.mu.Unlock()
	data, err := json.Marshal(content{BootID: c.bootID, change: all})
	if err != nil {
		return err
	}

	data = append(data, '\n')
	unfinished := c.path + ".new" // no other process uses the directory, so the name is unique
	err = os.WriteFile(unfinished, data, 0o600)
	if err == nil {
		err = os.Rename(unfinished, c.path)
	}
	if err != nil {
		_ = os.Remove(unfinished) // if this fails, the next write replaces the file
		return err
	}
	c.size, c.room = int64(len(data)), min(max(slack, int64(len(data))), maxSize-int64(len(data)))
	return nil
}
