// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// wideOf returns a text in UTF-16 with a byte order mark.
func wideOf(text string) string {
	wide := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(text)) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	return string(wide)
}

func TestByteOrderMarksAreAccepted(t *testing.T) {
	good := classFile("a", "{names: [x]}")
	for name, content := range map[string]string{"UTF-8": "\ufeff" + good, "UTF-16": wideOf(good)} {
		t.Run(name, func(t *testing.T) {
			if source := config.Read(directory(t, map[string]string{"a.yaml": content}), kinds(), os.ReadFile); source.Err != nil {
				t.Error(source.Err)
			}
		})
	}
}

// maxMemory returns a quarter of the plugin's memory limit in deploy/kubernetes, in bytes. With the race detector, it
// returns four times this value.
func maxMemory() int {
	const most, factor = 64 << 20, 4
	info, known := debug.ReadBuildInfo()
	if known && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return most * factor
	}
	return most
}

// largestSet is the beginning of the line in /proc/PID/status that has the peak memory of the process in kB.
const largestSet = "VmHWM:"

// fileVariable is the environment variable with the directory that TestReadInAProcessOfItsOwn reads.
const fileVariable = "QOS_TEST_CLASS_FILES"

// TestReadInAProcessOfItsOwn runs in the child process that TestLargeFilesDoNotExceedTheMemoryLimit starts.
func TestReadInAProcessOfItsOwn(t *testing.T) {
	dir := os.Getenv(fileVariable)
	if dir == "" {
		t.Skip("nothing to read")
	}

	if source := config.Read(dir, config.OfflineKinds(), os.ReadFile); source.Err != nil {
		t.Logf("refused: %.200s", source.Err)
	}

	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, largestSet) {
			t.Log(line)
		}
	}
}

// memoryOf returns the peak memory of a process in bytes, from its output.
func memoryOf(t *testing.T, status string) int {
	t.Helper()
	_, after, found := strings.Cut(status, largestSet)
	number, _, _ := strings.Cut(strings.TrimSpace(after), " kB")
	kilobytes, err := strconv.Atoi(number)
	if !found || err != nil {
		t.Fatalf("no %s in:\n%s", largestSet, status)
	}
	return kilobytes << 10
}

func TestLargeFilesDoNotExceedTheMemoryLimit(t *testing.T) {
	const head = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n"
	const blockIO, group = head + "- name: k8s.io/blockio\n  blockio: {Classes: {", head + "- name: k8s.io/rdt\n  rdt: {partitions: {p: {classes: {"
	for _, test := range []struct {
		name, begin, end string
		each             func(i int) string
	}{
		{"of unknown fields", head + "- name: k8s.io/rdt\n", "", func(i int) string { return fmt.Sprintf("  x%d: 1\n", i) }},
		{"of resources", head, "", func(i int) string { return fmt.Sprintf("- name: a.b/x%d\n  rdt: {}\n", i) }},
		{"of one class again and again", group, "}}}}\n", func(int) string { return "gold: ," }},
		{"of classes of disks", blockIO, "}}\n", func(i int) string { return fmt.Sprintf("c%d: ,", i) }},
		{"of classes of groups", group, "}}}}\n", func(i int) string { return fmt.Sprintf("c%d: ,", i) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			var text strings.Builder
			text.WriteString(test.begin)
			for i := 0; text.Len() < 256<<10-100; i++ {
				text.WriteString(test.each(i))
			}

			text.WriteString(test.end)
			command := child.Command(t, os.Args[0], "-test.v", "-test.run", "^TestReadInAProcessOfItsOwn$")
			command.Env = append(os.Environ(), fileVariable+"="+directory(t, map[string]string{"a.yaml": text.String()}))
			output, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, output)
			}

			if took := memoryOf(t, string(output)); took > maxMemory() {
				t.Errorf("the peak is %d MiB of memory:\n%s", took>>20, output)
			}
		})
	}
}

// TestTruncatedFilesAreRefusedOrHaveFewerClasses truncates an example at the end of each line and at many other bytes.
// Each truncated file is refused, or has only classes of the whole file.
func TestTruncatedFilesAreRefusedOrHaveFewerClasses(t *testing.T) {
	text, err := os.ReadFile("../../config/kep-example.yaml")
	must(t, err)
	whole := config.Read(directory(t, map[string]string{"a.yaml": string(text)}), config.OfflineKinds(), os.ReadFile)
	must(t, whole.Err)
	dir := t.TempDir()
	taken := 0
	for n := range text {
		if n%25 != 0 && text[n] != '\n' {
			continue
		}
		must(t, os.WriteFile(filepath.Join(dir, "a.yaml"), text[:n], 0o600))
		source := config.Read(dir, config.OfflineKinds(), os.ReadFile)
		if source.Err != nil {
			continue
		}
		taken++
		wantPart(t, n, whole.Config, source.Config)
	}

	if taken == 0 || taken > len(text)/10 {
		t.Errorf("%d truncated files are accepted, want some, but less than a tenth", taken)
	}
}

// wantPart checks that every class of a truncated file (the parameter `part`) is also a class of the whole file.
func wantPart(t *testing.T, n int, whole, part *classes.Config) {
	t.Helper()
	offered := map[string]bool{}
	for _, resource := range whole.Resources {
		for _, class := range resource.Classes {
			offered[resource.Name+" "+class.Name] = true
		}
	}

	for _, resource := range part.Resources {
		for _, class := range resource.Classes {
			if !offered[resource.Name+" "+class.Name] {
				t.Errorf("the first %d bytes have a class %q of %s, which the whole file does not have", n, class.Name, resource.Name)
			}
		}
	}
}
