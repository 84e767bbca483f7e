// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/qos-nri/qos-nri-plugin/internal/calibrate"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

func TestADiskThatDoesNotExistCannotBeMeasured(t *testing.T) {
	got := run(t.Context(), "calibrate-io", "/dev/nowhere", "--host-root", "/nowhere")
	if got.Code != program.ExitProblems || !strings.Contains(got.Errors, "find /dev/nowhere") || got.Out != "" {
		t.Errorf("answer is %+v", got)
	}
}

func TestADiskIsOverwrittenOnlyAfterItsNameWasTypedOrWithYes(t *testing.T) {
	const home = "/sys/devices/virtual/block/sda/"
	const notTyped = "/dev/sda was not overwritten, because the answer was not sda; scripts use --yes"
	const inUse = "/dev/sda is in use: it is mounted at /data"
	for _, test := range []struct {
		name, answer string
		yes, mounted bool
		want         string // the error
	}{
		{name: "the name of the disk", answer: "sda\n"},
		{name: "the name of the disk without a line end", answer: "sda"},
		{name: "yes", answer: "yes\n", want: notTyped},
		{name: "another name", answer: "sdb\n", want: notTyped},
		{name: "no answer", want: notTyped},
		{name: "a script with --yes", yes: true},
		{name: "a mounted disk", answer: "sda\n", mounted: true, want: inUse},
		{name: "a mounted disk, with --yes", yes: true, mounted: true, want: inUse},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := iotest.AddDisks(simcgroup.New())
			m.AddFile(home+"size", "2000\n")
			m.AddFile(home+"queue/rotational", "0\n")
			if test.mounted {
				m.Mount("41 28 8:1 / /data rw - ext4 /dev/sda1 rw")
			}
			disk, err := calibrate.Find(m, "/dev/sda")
			must(t, err)

			var asked strings.Builder
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.SetIn(strings.NewReader(test.answer))
			cmd.SetErr(&asked)
			o := calibrateOptions{yes: test.yes}
			got := ""
			if err := o.confirm(cmd, calibrate.Host{FS: m}, disk); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}

			question := "/dev/sda (8:0, 1.02 MB) will be overwritten: all data, with the partitions sda1, will be lost.\nType sda to go on: "
			if test.yes || test.mounted {
				question = ""
			}
			if asked.String() != question {
				t.Errorf("asked %q, want %q", asked.String(), question)
			}
		})
	}
}

func TestTheQuestionBeforeADiskIsOverwrittenCanBeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, out := io.Pipe()
	if _, err := readLine(ctx, in); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	must(t, out.Close())
}

func TestALostTerminalEndsTheMeasurement(t *testing.T) {
	for _, lost := range []syscall.Signal{syscall.SIGHUP, syscall.SIGPIPE} {
		if signal.Ignored(lost) { // e.g. by nohup
			continue
		}
		ctx, stop := untilTerminalIsGone(t.Context())
		must(t, syscall.Kill(os.Getpid(), lost))
		<-ctx.Done()
		stop()
	}
}

func TestAMeasurementIsPrintedIfItHasNoFileOrTheFileCannotBeWritten(t *testing.T) {
	for _, test := range []struct {
		output  string
		printed string
		fails   bool
	}{
		{"", "model: {}\n", false},
		{filepath.Join(t.TempDir(), "cost.yaml"), "", false},
		{filepath.Join(t.TempDir(), "missing/cost.yaml"), "model: {}\n", true},
	} {
		var out strings.Builder
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		o := calibrateOptions{output: test.output}
		err := o.save(cmd, []byte("model: {}\n"))
		if (err != nil) != test.fails || out.String() != test.printed {
			t.Errorf("%q: printed %q, error %v", test.output, out.String(), err)
		}
		if data, err := os.ReadFile(test.output); test.output != "" && !test.fails && string(data) != "model: {}\n" {
			t.Errorf("the file has %q (%v)", data, err)
		}
	}
}

// TestTheProgressHasALineForEachMeasurement prints to no terminal. So only the end of a measurement has a line.
func TestTheProgressHasALineForEachMeasurement(t *testing.T) {
	var out strings.Builder
	show := showProgress(&out)
	for _, done := range []bool{false, false, true} {
		show(calibrate.Progress{Step: 2, Steps: 4, Name: "rseqiops", Value: "400 requests/s", Done: done, Left: 59_600 * time.Millisecond})
	}
	if got := out.String(); got != "2 of 4: rseqiops 400 requests/s, 1m0s left\n" {
		t.Errorf("printed %q", got)
	}
}
