// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"sync"
)

// keptLog is the size of the kept end of the log, in bytes.
const keptLog = 64 << 10

// tail stores the end of a log.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (t *tail) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, line...)
	if over := len(t.text) - keptLog; over > keptLog { // not at every line, because this copies the text
		t.text = bytes.Clone(t.text[over:])
	}
	return len(line), nil
}

// String returns the end of the log. It begins with a whole line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.text[max(0, len(t.text)-keptLog):]
	if _, rest, found := bytes.Cut(text, []byte("\n")); found && len(text) == keptLog {
		text = rest
	}
	return string(text)
}
