// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"hash/crc64"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	costDisk = "/dev/vdb"
	// The kernel limits the disk to these speeds while it is measured.
	costIOPS = 400
	costBPS  = 64 << 20
)

// calibrates measures a disk whose speed is known, and gives the result to the kernel by a class file.
func calibrates(t *testing.T, p *pod) {
	n := p.node
	number := deviceNumber(t, costDisk)
	group := filepath.Join("/sys/fs/cgroup", "calibrated")
	must(t, os.Mkdir(group, 0o755))
	t.Cleanup(func() { must(t, os.Remove(group)) })
	mustWrite(t, filepath.Join(group, "io.max"), fmt.Sprintf("%s rbps=%[2]d wbps=%[2]d riops=%[3]d wiops=%[3]d", number, costBPS, costIOPS))

	before, queue := hashOf(t, costDisk), queueOf(t)
	reads, err := calibrate(group)
	must(t, err)
	wantSpeeds(t, reads, "rbps", "rseqiops", "rrandiops")
	if strings.Contains(reads, "\n  wbps:") || hashOf(t, costDisk) != before {
		t.Errorf("the disk was written without --write:\n%s", reads)
	}

	mountNew(t, costDisk, "/vols/calibrated")
	if _, err := calibrate(group, "--write", "--yes"); err == nil || !strings.Contains(err.Error(), "it is mounted at /vols/calibrated") {
		t.Errorf("a mounted disk is not refused: %v", err)
	}
	must(t, unix.Unmount("/vols/calibrated", 0))

	all, err := calibrate(group, "--write", "--yes")
	must(t, err)
	t.Log(all)
	wantSpeeds(t, all, "rbps", "wbps", "rseqiops", "wseqiops", "rrandiops", "wrandiops")
	if hashOf(t, costDisk) == before {
		t.Error("the disk was not written")
	}
	if got := queueOf(t); got != queue {
		t.Errorf("the queue of the disk is %q, and was %q", got, queue)
	}

	file := filepath.Join(t.TempDir(), "cost.yaml")
	must(t, os.WriteFile(file, []byte(all), 0o600))
	writeClassFile(t, strings.Replace(classFile, "  blockio:\n", "  blockio:\n    CostModels: ["+strconv.Quote(file)+"]\n", 1))
	n.wantWeightsEffective(t, true)
	model := fmt.Sprintf("%s ctrl=user model=linear", number)
	for _, key := range []string{"rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"} {
		model += fmt.Sprintf(" %s=%d", key, speed(t, all, key))
	}
	if got := strings.TrimSpace(mustRead(t, "/sys/fs/cgroup/io.cost.model")); got != model {
		t.Errorf("io.cost.model is %q, want %q", got, model)
	}
	if _, err := calibrate(group); err == nil || !strings.Contains(err.Error(), "iocost is enabled for /dev/vdb") {
		t.Errorf("a disk with iocost is not refused: %v", err)
	}

	writeClassFile(t, classFile)
	n.wantWeightsEffective(t, false)
	for file, want := range map[string]string{"model": number + " ctrl=auto", "qos": number + " enable=0 ctrl=auto"} {
		if got := mustRead(t, "/sys/fs/cgroup/io.cost."+file); !strings.HasPrefix(got, want) {
			t.Errorf("io.cost.%s is %q after the cost model was removed, want %q", file, got, want)
		}
	}
}

// calibrate runs calibrate-io for costDisk in a cgroup, and returns the file that it prints.
func calibrate(group string, flags ...string) (string, error) {
	return calibrateIO("/bin/sh", "-c", fmt.Sprintf("echo $$ > %s/cgroup.procs; exec qos-nri-plugin calibrate-io --duration 5s %s %s",
		group, costDisk, strings.Join(flags, " ")))
}

// calibrateIO runs a program that is, or becomes, calibrate-io, and returns its output. While the speed of the disk
// varies too much, as on a busy host, it measures again, up to five times.
func calibrateIO(program string, args ...string) (printed string, err error) {
	for range 5 {
		if printed, err = output(program, args...); !varied(err) {
			break
		}
	}
	return printed, err
}

// varied reports whether calibrate-io has refused to make a model, because the speed of the disk varied.
func varied(err error) bool { return err != nil && strings.Contains(err.Error(), " varied by ") }

func speed(t *testing.T, file, key string) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^  ` + key + `: (\d+)`).FindStringSubmatch(file)
	if found == nil {
		t.Fatalf("the file has no %s:\n%s", key, file)
	}
	value, err := strconv.Atoi(found[1])
	must(t, err)
	return value
}

func wantSpeeds(t *testing.T, file string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		want := costIOPS
		if strings.HasSuffix(key, "bps") {
			want = costBPS
		}
		if got := speed(t, file, key); math.Abs(float64(got-want)) > 0.15*float64(want) {
			t.Errorf("%s is %d, want %d within 15%%", key, got, want)
		}
	}
}

func queueOf(t *testing.T) string {
	t.Helper()
	dir := "/sys/block/" + filepath.Base(costDisk) + "/queue/"
	return mustRead(t, dir+"scheduler") + mustRead(t, dir+"nomerges")
}

func hashOf(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	hash := crc64.New(crc64.MakeTable(crc64.ISO)) // quick on an emulated CPU
	_, err = io.Copy(hash, file)
	must(t, err)
	return fmt.Sprint(hash.Sum64())
}
