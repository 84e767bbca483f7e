// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

func TestStatusShowsTables(t *testing.T) {
	wantAnswer(t, answer{Out: `
Plugin:   v0.1.0, started TIME
Runtime:  containerd v2.4.2 (NRI v0.12.3), registered since TIME
Config:   generation 1, hash 0123456789ab, loaded TIME: classes.yaml

RESOURCE                SCOPE      MUTABLE  DEFAULT CLASS
k8s.io/rdt              container  yes      bronze
k8s.io/blockio          container  yes      <system default>
vendor.example/network  pod        yes      <system default>

RESOURCE                CLASS      CAPACITY   IN USE  EXTENDED RESOURCE                       NOTE
k8s.io/rdt              gold       1          1       qos.noderesource.dev/rdt.gold           for those in a hurry
k8s.io/rdt              bronze     unlimited  2       qos.noderesource.dev/rdt.bronze
k8s.io/blockio          high-prio  4          0       qos.noderesource.dev/blockio.high-prio
k8s.io/blockio          throttled  unlimited  0       qos.noderesource.dev/blockio.throttled
vendor.example/network  fast       unlimited  1       vendor.example/network.fast

CONDITION             OF      HEALTHY  REASON      SINCE                 MESSAGE
ConfigurationApplied  plugin  yes      Applied     TIME  The class files are in force.
RuntimeRegistered     plugin  yes      Registered  TIME  Registered with the container runtime.
KernelAnswers         plugin  yes      Answers     TIME  The kernel answers.
`}, newFixture(t).ask(t, "status"))
}

func TestStatusAsJSONIsAMessageOfTheAPI(t *testing.T) {
	f := newFixture(t)
	got := run(t.Context(), "status", "-o", "json", "--api-socket", f.socket)
	var message qosv1alpha1.StatusResponse
	if err := protojson.Unmarshal([]byte(got.Out), &message); err != nil {
		t.Fatalf("%v in %s", err, got.Out)
	}
	if resources := message.GetResources().GetContainerQosResources(); len(resources) != 2 || resources[0].GetClasses()[0].GetInUse() != 1 {
		t.Errorf("resources are %v", resources)
	}
}

// untilBoth is the output of a command that prints two words, one after the other. After each write, untilBoth calls
// `end` if the output has the second word, and `saw` if it has only the first word. The function `end` interrupts the
// command.
type untilBoth struct {
	bytes.Buffer
	words [2]string
	end   func()
	saw   func()
}

func (w *untilBoth) Write(data []byte) (int, error) {
	n, err := w.Buffer.Write(data)
	switch text := w.String(); {
	case strings.Contains(text, w.words[1]):
		w.end()
	case strings.Contains(text, w.words[0]):
		w.saw()
	}
	return n, err
}

func TestStatusWatchesUntilInterrupted(t *testing.T) {
	f := newFixture(t)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &untilBoth{words: [2]string{`"inUse": "1"`, `"inUse": "3"`}, end: interrupt, saw: func() {
		if err := f.RunPod(ctx, "default", "more", "", "main"); err != nil { // the third container in the default class
			t.Error(err)
		}
	}}

	root := newRootCommand()
	root.SetOut(out)
	if code := program.Execute(ctx, root, []string{"status", "-w", "-o", "json", "--api-socket", f.socket}); code != 0 {
		t.Errorf("after an interrupt, the exit code is %d, want 0", code)
	}

	decoder := json.NewDecoder(&out.Buffer)
	documents := 0
	for decoder.More() {
		var document map[string]any
		must(t, decoder.Decode(&document))
		documents++
	}

	if documents < 2 {
		t.Errorf("%d documents, want the first state and a change", documents)
	}
}

func TestASocketThatDoesNotAnswerIsAnErrorWithTheRemedy(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))

	for _, test := range []struct{ name, socket, want string }{
		{"a socket that does not exist", filepath.Join(dir, "none.sock"), "no such file or directory; check that qos-nri-plugin runs"},
		{"a file on which no process listens", file, "connection refused; check that qos-nri-plugin runs"},
		{"a path that is too long", "/" + strings.Repeat("x", 120), "at most 107 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, args := range [][]string{{"status"}, {"assignments"}, {"update", "default/web", "main", "rdt=gold"}} {
				got := run(t.Context(), append(args, "--api-socket", test.socket)...)
				if got.Code != 1 || !strings.Contains(got.Errors, test.want) || !strings.Contains(got.Errors, test.socket) || strings.Count(got.Errors, "\n") != 1 {
					t.Errorf("%v answers %+v, want one line with the socket and %q", args, got, test.want)
				}
			}
		})
	}
}

// TestWrongCommandLinesExitWithTwo divides the command lines at single spaces, so that an argument can be empty. No plugin runs.
func TestWrongCommandLinesExitWithTwo(t *testing.T) {
	for args, reason := range map[string]string{
		"status extra":                               "",
		"status -o xml":                              `--output "xml" is not one of table, json, yaml`,
		"status --none":                              "",
		"assignments a b":                            "at most one POD, not 2",
		"assignments -o ":                            `--output "" is not one of`,
		"update":                                     "2 or 3 arguments are required, not 0",
		"update default/web main":                    "",
		"update default/web main rdt":                "",
		"update default/web main ":                   "the request is empty",
		"update default/web main rdt=a,rdt=b":        "",
		"version extra":                              "",
		"top --sort-by=size":                         `--sort-by "size" is not one of cache, memory,`,
		"top --interval=500ms":                       "--interval 500ms is shorter than 1s",
		"check a b":                                  "at most one PATH, not 2",
		"calibrate-io":                               "name one disk, such as /dev/sdb",
		"calibrate-io /dev/sda /dev/sdb":             "name one disk, such as /dev/sdb",
		"calibrate-io sda":                           "name one disk, such as /dev/sdb",
		"calibrate-io /dev/sda --duration 100ms":     "--duration 100ms is not between 1s and 10m",
		"calibrate-io /dev/sda --directory /a --yes": "--directory writes to a file, and --write to the disk; use one of them",
		"calibrate-io /dev/sda --directory a":        `--directory "a" is not an absolute path`,
		"calibrate-io /dev/sda --depth 0":            "--depth 0 is not between 1 and 1024",
		"run --nri-index 1":                          `--nri-index "1" is not a number of two digits`,
		"run --held-interval 500ms":                  "--held-interval 500ms is not between 1s and 5m, and not 0",
		"run --history-interval 2m":                  "--history-interval 2m0s is not between 1s and 1m, and not 0",
	} {
		t.Run(args, func(t *testing.T) {
			got := run(t.Context(), strings.Split(args, " ")...)
			if got.Code != program.ExitUsage || got.Out != "" || !strings.HasPrefix(got.Errors, "Error: usage: ") || !strings.Contains(got.Errors, reason) {
				t.Errorf("answer is %+v, want %d and %q", got, program.ExitUsage, reason)
			}
		})
	}
}
