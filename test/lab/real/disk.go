// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/test/lab"
	"github.com/qos-nri/qos-nri-plugin/test/lab/load"
)

const (
	// scratchSize is the size of the file that is read and written.
	scratchSize = 128 << 20
	// maxOffered is the maximum number of offered reads per second. With more, the CPU would limit the rate, and not
	// the disk.
	maxOffered = 4000
	// blockSize is the size of a read.
	blockSize = 4 << 10
)

// diskScene measures a process that reads from the disk of the directory `dir`, at half of the disk's speed or less.
// Two other processes read and write as fast as they can. It sets the cgroup files that the plugin sets for a class, if
// the cgroup version of this machine has them. At the end it removes its file and cgroups.
func diskScene(ctx context.Context, dir string, seconds int) (scene *lab.Scene, err error) {
	file, disk, err := scratch(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()

	tree, err := cgroup.Detect(hostfs.Root("/"))
	if err != nil {
		return nil, err
	}
	root, version, err := tree.IORoot()
	if err != nil {
		return nil, fmt.Errorf("measure classes of block I/O: %w", err)
	}

	program, err := os.Executable()
	if err != nil {
		return nil, err
	}

	e := &diskExperiment{
		ctx: ctx, program: program, file: file, disk: disk,
		root: root, group: path.Join(root, "qos-lab"), version: version, seconds: seconds,
	}
	defer func() { err = errors.Join(err, e.remove()) }()
	if err := e.makeGroups(); err != nil {
		return nil, err
	}
	return e.run()
}

// scratch makes the file that is read and written, and returns its name and its disk.
func scratch(dir string) (name string, disk iocgroup.Disk, err error) {
	file, err := os.CreateTemp(dir, "qos-lab-")
	if err != nil {
		return "", iocgroup.Disk{}, err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()

	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return "", iocgroup.Disk{}, err
	}
	device := iocgroup.Device{Major: unix.Major(stat.Dev), Minor: unix.Minor(stat.Dev)}
	disk, _, err = iocgroup.WholeDisk(hostfs.Root("/"), device)
	if err != nil {
		return "", disk, fmt.Errorf("%s is on no block device, choose a directory with -dir: %w", dir, err)
	}

	block := make([]byte, 1<<20)
	for range scratchSize / len(block) {
		if _, err := file.Write(block); err != nil {
			return "", disk, fmt.Errorf("fill %s: %w", file.Name(), err)
		}
	}
	return file.Name(), disk, file.Sync()
}

// diskExperiment runs processes in two cgroups, and measures them for a lab.Scene.
type diskExperiment struct {
	ctx         context.Context
	program     string // this one
	file        string // that is read and written
	disk        iocgroup.Disk
	root, group string // directories of the io controller
	version     int    // of cgroups
	seconds     int
}

// The cgroups, below that of the experiment.
const (
	protected = "protected"
	noisy     = "noisy"
)

func (e *diskExperiment) run() (*lab.Scene, error) {
	speed, err := e.speed()
	if err != nil {
		return nil, err
	}

	offered := min(max(1, int(speed/2)), maxOffered)
	alone, err := e.read(offered)
	if err != nil {
		return nil, err
	}
	title := fmt.Sprintf("%d of %.f reads a second, %s, cgroup v%d", offered, speed, e.disk.Name, e.version)
	scene := lab.NewProtection("protection-this-machine", title, offered, alone)

	neighbours, err := e.startNoisy()
	defer func() { stopAll(neighbours) }()
	if err != nil {
		return nil, err
	}
	for _, s := range e.situations(int(math.Ceil(speed/10)), scene.Latency()) {
		if s.reason != "" {
			scene.CannotShow(s.name, s.reason)
			continue
		}
		if err := e.measure(scene, s, offered, neighbours); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return &scene.Scene, nil
}

// situation has the values of cgroup files for a kind of class.
type situation struct {
	name   string
	reason string // why this machine cannot run the situation, or ""
	set    []setting
}

// setting is a value of a file in a cgroup, and the value that resets the file.
type setting struct{ group, file, value, reset string }

// situations returns the situations in which the process is measured beside the neighbours. `limit` is in operations
// per second. `latency` is the latency of the process alone, in milliseconds.
func (e *diskExperiment) situations(limit int, latency float64) []situation {
	all := []situation{{name: lab.NoClass}}
	number := e.disk.Device.String()
	if e.version == 1 {
		throttled := situation{name: lab.Throttled}
		for _, kind := range []string{"read", "write"} {
			throttled.set = append(throttled.set, setting{noisy, "blkio.throttle." + kind + "_iops_device", fmt.Sprint(number, " ", limit), number + " 0"})
		}
		return append(all, throttled, situation{name: lab.ByWeights, reason: "cgroup v1 has no iocost"},
			situation{name: lab.ByLatency, reason: "cgroup v1 has no io.latency"})
	}

	limits := fmt.Sprintf("%s riops=%d wiops=%[2]d", number, limit)
	// The kernel's documentation recommends a target 10 to 15% above the latency of the undisturbed workload.
	target := max(1, int(latency*1.15*1000))
	return append(all,
		e.need("", situation{name: lab.Throttled, set: []setting{{noisy, "io.max", limits, number + " riops=max wiops=max"}}}),
		e.need(e.withoutCost(), situation{name: lab.ByWeights, set: []setting{
			{protected, "io.weight", "default 10000", "default 100"}, {noisy, "io.weight", "default 405", "default 100"},
		}}),
		e.need("", situation{name: lab.ByLatency, set: []setting{
			{protected, "io.latency", fmt.Sprintf("%s target=%d", number, target), number + " target=0"},
		}}))
}

// need adds the reason if this machine cannot run a situation: the parameter `reason` or, if it is empty, a missing
// cgroup file.
func (e *diskExperiment) need(reason string, s situation) situation {
	s.reason = reason
	for _, set := range s.set {
		if _, err := os.Stat(path.Join(e.group, set.group, set.file)); err != nil && s.reason == "" {
			s.reason = "its kernel has no " + set.file
		}
	}
	return s
}

// withoutCost returns the reason why weights have no effect on the disk, or "".
func (e *diskExperiment) withoutCost() string {
	costs, err := iocgroup.ReadCosts(hostfs.Root("/"), e.root)
	switch {
	case costs == nil || err != nil:
		return "its kernel has no iocost"
	case !costs[e.disk.Device].Enabled():
		return "iocost is not enabled for " + e.disk.String()
	}
	return ""
}

// measure sets the values of a situation, measures, and resets them.
func (e *diskExperiment) measure(scene *lab.Protection, s situation, offered int, neighbours []*exec.Cmd) (err error) {
	defer func() {
		for _, set := range s.set {
			err = errors.Join(err, e.write(path.Join(set.group, set.file), set.reset))
		}
	}()
	for _, set := range s.set {
		if err := e.write(path.Join(set.group, set.file), set.value); err != nil {
			return err
		}
	}

	before, begin := transferred(neighbours), time.Now()
	served, err := e.read(offered)
	if err != nil {
		return err
	}
	scene.Measured(s.name, served, (transferred(neighbours)-before)/time.Since(begin).Seconds()/1e6)
	return nil
}

func (e *diskExperiment) makeGroups() error {
	dirs := []string{e.group, path.Join(e.group, protected), path.Join(e.group, noisy)}
	for _, dir := range dirs {
		if e.version == 2 {
			if err := os.WriteFile(path.Join(path.Dir(dir), "cgroup.subtree_control"), []byte("+io"), 0); err != nil {
				return err
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (e *diskExperiment) remove() error {
	var errs []error
	for _, dir := range []string{path.Join(e.group, protected), path.Join(e.group, noisy), e.group} {
		if err := os.Remove(dir); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (e *diskExperiment) write(file, value string) error {
	return os.WriteFile(path.Join(e.group, file), []byte(value), 0o600)
}

// speed returns the number of reads per second for the threads of one process.
func (e *diskExperiment) speed() (float64, error) {
	cmd := e.command(protected, "load", "read", e.file, strconv.Itoa(load.Threads))
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer stopAll([]*exec.Cmd{cmd})

	const duration = 3
	if err := e.wait(time.Second); err != nil {
		return 0, err
	}
	before := transferred([]*exec.Cmd{cmd})
	if err := e.wait(duration * time.Second); err != nil {
		return 0, err
	}
	return (transferred([]*exec.Cmd{cmd}) - before) / blockSize / duration, nil
}

func (e *diskExperiment) wait(duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

// read runs the protected process.
func (e *diskExperiment) read(offered int) ([]lab.Second, error) {
	cmd := e.command(protected, "steady", e.file, strconv.Itoa(offered), strconv.Itoa(e.seconds))
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	var served []lab.Second
	return served, json.Unmarshal(out.Bytes(), &served)
}

func (e *diskExperiment) startNoisy() (all []*exec.Cmd, err error) {
	for _, kind := range []string{"read", "write"} {
		cmd := e.command(noisy, "load", kind, e.file, strconv.Itoa(load.Threads))
		if err := cmd.Start(); err != nil {
			return all, err
		}
		all = append(all, cmd)
	}
	return all, nil
}

// command returns a command that runs this program in a cgroup.
func (e *diskExperiment) command(group string, args ...string) *exec.Cmd {
	script := []string{"-c", `echo $$ >"$0" && exec "$@"`, path.Join(e.group, group, "cgroup.procs"), e.program}
	cmd := exec.CommandContext(e.ctx, "sh", append(script, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// transferred returns the number of bytes that the processes have read from and written to disks. Processes that have
// ended count as 0.
func transferred(processes []*exec.Cmd) float64 {
	sum := 0.0
	for _, p := range processes {
		counters, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.Process.Pid))
		for line := range strings.Lines(string(counters)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if n, err := strconv.ParseFloat(value, 64); err == nil && (name == "read_bytes" || name == "write_bytes") {
				sum += n
			}
		}
	}
	return sum
}

func stopAll(processes []*exec.Cmd) {
	for _, p := range processes {
		_ = p.Process.Kill()
		_ = p.Wait() // the error is that it was killed
	}
}
