// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// usageIsMeasured runs "kubectl qos top usage" for a node whose containers are monitored.
func usageIsMeasured(t *testing.T, n *node) {
	n.run(t, pod{name: "measured", classes: n.asks("gold")})
	n.running(t, "measured")
	n.inClass(t, "measured", "gold")
	group := "/sys/fs/resctrl/qos-gold/mon_groups/qos-" + n.containerID("measured")
	until(t, "the container has a monitoring group", func() (bool, string) {
		output, err := n.machine.run("ls", group)
		return err == nil, output
	})

	t.Run("the reported occupancy of a container is that of the kernel", func(t *testing.T) { occupancyIsTheKernels(t, n, group) })
	t.Run("tables are printed as lines, in the order of --sort-by", func(t *testing.T) { tablesAreSortedLines(t, n) })
}

// occupancyIsTheKernels compares the JSON output of "kubectl qos top usage" with the kernel's counter, which is constant on
// the emulated CPU.
func occupancyIsTheKernels(t *testing.T, n *node, group string) {
	want, err := n.machine.run("cat", group+"/mon_data/mon_L3_00/llc_occupancy")
	must(t, err)
	var list struct {
		Items []struct {
			Node, Resource, Class, Namespace, Pod, Container string
			Measurements                                     []struct {
				Name, Part string
				Value      float64
			}
		}
	}

	var output string
	until(t, "the node answers", func() (bool, string) { // the emulated machine may answer only after the timeout of the command
		output, err = n.tryQOS("", "top", "usage", n.name, "--once", "--containers", "-o", "json")
		return err == nil, output
	})

	must(t, json.Unmarshal([]byte(output), &list))

	var got []string
	for _, item := range list.Items {
		for _, m := range item.Measurements {
			if item.Pod == "measured" && m.Name == "llc_occupancy_bytes" {
				got = append(got, fmt.Sprintln(item.Node, item.Resource, item.Class, item.Namespace, item.Container, m.Part, m.Value))
			}
		}
	}

	number, err := strconv.ParseFloat(strings.TrimSpace(want), 64)
	if line := fmt.Sprintln(n.name, "k8s.io/rdt gold default main 0", number); err != nil || number == 0 || !slices.Equal(got, []string{line}) {
		t.Errorf("the occupancy is %q, and the kernel's is %q, in the document\n%s", got, want, output)
	}
}

// tablesAreSortedLines checks the tables that "kubectl qos top usage" prints until the command is interrupted.
func tablesAreSortedLines(t *testing.T, n *node) {
	var lines []string
	until(t, "the node answers at each interval", func() (bool, string) {
		var err error
		lines, err = n.usageLines(n.name+" k8s.io/rdt default measured main gold 0 ", "--containers", "--sort-by=cache", "--interval=1s")
		return err == nil, fmt.Sprint(err)
	})

	output := strings.Join(lines, "\n")
	if strings.Contains(output, "\x1b") {
		t.Errorf("the output has escape sequences, although it is no terminal: %q", output)
	}

	sorted := 0
	var caches []float64
	column := -1
	for _, line := range lines {
		switch cells := regexp.MustCompile(" {2,}").Split(line, -1); {
		case cells[0] == "NODE":
			column = slices.Index(cells, "CACHE")
			caches = nil
		case column > 0 && line != "":
			cache, err := strconv.ParseFloat(strings.TrimSuffix(cells[column], "Mi"), 64)
			if caches = append(caches, -cache); err != nil || !slices.IsSorted(caches) {
				t.Errorf("%q is not in the order of the column CACHE (%v) in\n%s", line, err, output)
			}
			sorted++
		}
	}

	if sorted == 0 {
		t.Errorf("there is no column CACHE in\n%s", output)
	}
}

// usageLines returns the lines that "kubectl qos top usage" prints until a line begins with `row` for the second time. Then it interrupts the
// command. It ignores the number of blanks in the lines.
func (n *node) usageLines(row string, flags ...string) (lines []string, err error) {
	command := n.qosCommand("", append([]string{"top", "usage", n.name}, flags...)...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if err := command.Start(); err != nil {
		return nil, err
	}

	rows := 0
	for scanner := bufio.NewScanner(output); rows < 2 && scanner.Scan(); {
		lines = append(lines, scanner.Text())
		if hasLines(scanner.Text(), row) {
			rows++
		}
	}

	err = errors.Join(command.Process.Signal(os.Interrupt), command.Wait())
	if rows < 2 {
		err = errors.Join(err, fmt.Errorf("%d lines begin with %q", rows, row))
	}
	if err != nil {
		return nil, fmt.Errorf("kubectl qos top usage: %w\n%s%s", err, strings.Join(lines, "\n"), stderr.String())
	}

	return lines, nil
}
