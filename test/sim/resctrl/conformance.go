// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tree is a resctrl filesystem, simulated or real.
type Tree interface {
	ReadFile(path string) ([]byte, error)
	WriteFile(path string, data []byte) error
	Mkdir(path string) error
	Remove(path string) error
	ReadDir(path string) ([]string, error)
	Rename(from, to string) error
}

// Operation is one step of the conformance table, which runs both on a kernel and on the simulation.
type Operation struct {
	// Do is write, mkdir, remove, rename, read, or list.
	Do string
	// Path is below the mount point.
	Path string
	// Data is the data of a write, or the new path of a rename. A TaskMark in it stands for a thread ID.
	Data string
	// `Then` has the files to read afterwards.
	Then []string
}

// TaskMark is replaced by the thread ID that is passed to Run.
const TaskMark = "{task}"

// Result is the outcome of an operation.
type Result struct {
	Operation Operation
	// Errno is the name of the error, e.g. EINVAL. It is empty without an error.
	Errno string
	// Status is info/last_cmd_status.
	Status string
	// Text is the content that was read, by the operation itself or afterwards.
	Text string
}

func (r Result) String() string {
	outcome := r.Errno
	if outcome == "" {
		outcome = "ok"
	}
	text := fmt.Sprintf("%s %s %q: %s, %q", r.Operation.Do, r.Operation.Path, r.Operation.Data, outcome, r.Status)
	for line := range strings.Lines(r.Text) {
		text += "\n\t" + strings.TrimSuffix(line, "\n")
	}
	return text
}

// Run does all operations on a resctrl without groups. `task` is the ID of a thread in the root group.
func Run(tree Tree, point string, task int, operations []Operation) []Result {
	results := make([]Result, 0, len(operations))
	for _, operation := range operations {
		results = append(results, run(tree, point, strconv.Itoa(task), operation))
	}
	return results
}

func run(tree Tree, point, task string, operation Operation) Result {
	name := path.Join(point, operation.Path)
	data := strings.ReplaceAll(operation.Data, TaskMark, task)
	var text []byte
	var err error
	switch operation.Do {
	case "write":
		err = tree.WriteFile(name, []byte(data))
	case "mkdir":
		err = tree.Mkdir(name)
	case "remove":
		err = tree.Remove(name)
	case "rename":
		err = tree.Rename(name, path.Join(point, data))
	case "read":
		text, err = tree.ReadFile(name)
	case "list":
		var names []string
		names, err = tree.ReadDir(name)
		text = []byte(strings.Join(names, " ") + "\n")
	}

	result := Result{Operation: operation, Errno: errnoName(err)}
	status, _ := tree.ReadFile(path.Join(point, "info/last_cmd_status"))
	for _, file := range operation.Then {
		if !strings.HasPrefix(file, "/") {
			file = path.Join(point, file)
		}
		content, err := tree.ReadFile(strings.ReplaceAll(file, TaskMark, task))
		if err != nil {
			content = []byte(errnoName(err) + "\n")
		}
		text = append(text, content...)
	}

	result.Status = strings.ReplaceAll(string(status), task, TaskMark)
	result.Text = maskTask(string(text), task)
	return result
}

// maskTask writes TaskMark in place of each line that has only the thread's ID.
func maskTask(text, task string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if line == task {
			lines[i] = TaskMark
		}
	}
	return strings.Join(lines, "\n")
}

func errnoName(err error) string {
	if err == nil {
		return ""
	}

	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}

	return cmp.Or(unix.ErrnoName(errno), errno.Error())
}

// Disagreements runs the conformance table of a machine on a real resctrl and on the simulation, and returns the
// differences. The real resctrl must match the spec, including its mount options, and have no groups.
func Disagreements(kernel Tree, point string, task int, spec Spec) (differences []string) {
	operations := Operations(spec)
	simulated := New(spec)
	simulated.AddTask(task, "")

	want, got := Run(kernel, point, task, operations), Run(simulated, MountPoint, task, operations)
	for i := range operations {
		if want[i].String() != got[i].String() {
			differences = append(differences, fmt.Sprintf("kernel:     %s\nsimulation: %s", want[i], got[i]))
		}
	}
	return differences
}
