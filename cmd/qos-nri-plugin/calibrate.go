// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/internal/calibrate"
	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

type calibrateOptions struct {
	calibrate.Options
	hostRoot, output string
	yes              bool
}

func newCalibrateCommand() *cobra.Command {
	var o calibrateOptions
	cmd := &cobra.Command{
		Use:   "calibrate-io DEVICE",
		Short: "Measure how fast a disk is, for weights by iocost",
		Long: `calibrate-io measures the speed of a disk, and prints the parameters of iocost as a file. Name this file in the field CostModels
of a class file, and keep it outside of the directory of class files; weights then act on the disk. It measures what
tools/cgroup/iocost_coef_gen.py of the kernel measures, and the latencies like iocost-params of resctl-bench.

Without --directory or --write it only reads. The file then lacks the values of writes, and class files need all values. With
--directory it writes to a file without a name in a directory on the disk, and loses no data. --write OVERWRITES THE DISK: it asks first,
and refuses a disk that is mounted, used for swap, or a part of another device such as a logical volume.

While it measures, the disk is busy, has the I/O scheduler "none", and merges no requests. Measure while nothing else uses the disk.`,
		Example: `  qos-nri-plugin calibrate-io /dev/sdb
  qos-nri-plugin calibrate-io --directory /var/lib --output /etc/containers/sda-cost.yaml /dev/sda
  qos-nri-plugin calibrate-io --write --output /etc/containers/sdb-cost.yaml /dev/sdb`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1 || !filepath.IsAbs(args[0]):
				return program.UsageError(cmd, errors.New("name one disk, such as /dev/sdb"))
			case o.Directory != "" && (o.Write || o.yes):
				return program.UsageError(cmd, errors.New("--directory writes to a file, and --write to the disk; use one of them"))
			case o.Directory != "" && !filepath.IsAbs(o.Directory):
				return program.UsageError(cmd, fmt.Errorf("--directory %q is not an absolute path", o.Directory))
			case o.Duration < time.Second || o.Duration > 10*time.Minute:
				return program.UsageError(cmd, fmt.Errorf("--duration %s is not between 1s and 10m", o.Duration))
			case o.Depth < 1 || o.Depth > 1024:
				return program.UsageError(cmd, fmt.Errorf("--depth %d is not between 1 and 1024", o.Depth))
			}
			return o.run(cmd, args[0])
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Write, "write", false, "measure writes, too: THE DATA ON THE DISK IS LOST")
	flags.StringVar(&o.Directory, "directory", "", "measure writes, too, in a file of at most 16 GiB in this directory, which must be on the disk")
	flags.BoolVar(&o.yes, "yes", false, "do not ask before the disk is overwritten")
	flags.StringVarP(&o.output, "output", "o", "", "file to write; empty for the standard output")
	flags.DurationVar(&o.Duration, "duration", 30*time.Second, "duration of each measurement, from 1s to 10m; there are 4, and 8 with writes")
	flags.IntVar(&o.Depth, "depth", 64, "requests of 4 KiB at a time")
	flags.StringVar(&o.hostRoot, "host-root", agent.DefaultOptions().HostRoot, "directory that contains the host's /sys, /dev and /proc")
	return cmd
}

func (o *calibrateOptions) run(cmd *cobra.Command, device string) error {
	host := calibrate.Host{FS: hostfs.Root(o.hostRoot), Root: o.hostRoot}
	disk, err := calibrate.Find(host, device)
	if err != nil {
		return err
	}
	if o.Write {
		if err := o.confirm(cmd, host, disk); err != nil {
			return err
		}
	}

	kernel, err := host.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}

	ctx, stop := untilTerminalIsGone(cmd.Context())
	defer stop()
	o.Write = o.Write || o.Directory != ""
	o.Progress = showProgress(cmd.ErrOrStderr())
	result, err := calibrate.Run(ctx, host, disk, o.Options)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted; nothing was measured: %w", err)
	}
	if err != nil {
		return err
	}

	for _, sentence := range result.Unsteady() {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+sentence)
	}
	report := calibrate.Report{Disk: disk, Result: result, Options: o.Options, Kernel: strings.TrimSpace(string(kernel)), Measured: time.Now()}
	return o.save(cmd, report.YAML())
}

// save writes the file. If it cannot be written, save prints it, so that the measurement is not lost.
func (o *calibrateOptions) save(cmd *cobra.Command, data []byte) (err error) {
	if o.output != "" {
		err = os.WriteFile(o.output, data, 0o644) //nolint:gosec // it has no secrets, and the plugin may be another user
	}
	if o.output == "" || err != nil {
		_, printErr := cmd.OutOrStdout().Write(data)
		err = errors.Join(err, printErr)
	}
	return err
}

// untilTerminalIsGone returns a context that also ends with the terminal (SIGHUP), or with the program that reads the
// output (SIGPIPE). Otherwise these signals would end the process before the settings of the disk's queue are restored.
func untilTerminalIsGone(ctx context.Context) (context.Context, context.CancelFunc) {
	signals := []os.Signal{syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it, so that the measurement goes on
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(ctx, signals...)
}

// confirm asks before the disk is overwritten. It returns an error if the disk is in use, also with --yes.
func (o *calibrateOptions) confirm(cmd *cobra.Command, host calibrate.Host, disk calibrate.Disk) error {
	if err := calibrate.CheckUnused(host, disk); err != nil {
		return err
	}
	partitions, err := calibrate.Partitions(host, disk)
	if err != nil || o.yes {
		return err
	}

	lost := "all data"
	if len(partitions) > 0 {
		lost += ", with the partitions " + strings.Join(partitions, ", ") + ","
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s will be overwritten: %s will be lost.\nType %s to go on: ", disk, lost, disk.Name)
	answer, err := readLine(cmd.Context(), cmd.InOrStdin())
	if err != nil {
		return err
	}
	if strings.TrimSpace(answer) != disk.Name {
		return fmt.Errorf("%s was not overwritten, because the answer was not %s; scripts use --yes", disk.Device(), disk.Name)
	}
	return nil
}

// readLine reads a line, or what is left at the end of the input. It returns early if `ctx` ends. The goroutine that
// reads then runs until the program ends, because a read of a terminal cannot be interrupted.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	var line string
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		if line, err = bufio.NewReader(in).ReadString('\n'); errors.Is(err, io.EOF) {
			err = nil
		}
	}()

	select {
	case <-ctx.Done():
		return "", fmt.Errorf("interrupted; the disk was not overwritten: %w", ctx.Err())
	case <-read:
		return line, err
	}
}

// showProgress prints the progress: on a terminal in one line that changes, otherwise in a line for each measurement.
func showProgress(out io.Writer) func(calibrate.Progress) {
	file, isFile := out.(*os.File)
	isTerminal := isFile && term.IsTerminal(int(file.Fd()))
	return func(p calibrate.Progress) {
		text := fmt.Sprintf("%d of %d: %s %s, %s left", p.Step, p.Steps, p.Name, p.Value, p.Left.Round(time.Second))
		switch {
		case isTerminal && !p.Done:
			fmt.Fprint(out, "\r\x1b[K"+text)
		case isTerminal:
			fmt.Fprint(out, "\r\x1b[K"+text+"\n")
		case p.Done:
			fmt.Fprintln(out, text)
		}
	}
}
