// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// ofOthers has the parts of messages in docs/troubleshooting.md that other programs print: the kubelet, the scheduler, the runtimes,
// NRI, Go and the kernel.
var ofOthers = map[string]bool{
	"is not a shared or slave mount": true, "hostPath type check failed": true, "Insufficient": true, "RDT not initialized, class": true,
	"required plugin": true, "not present": true, "no such file or directory": true, "context deadline exceeded": true,
	"RDT disabled, refusing to set RDT class of container": true, "is on nfs4": true,
	"cannot start a container that has stopped": true,
}

// TestMessagesOfTroubleshootingExist looks up the messages with which the items of docs/troubleshooting.md begin in the sources of the
// programs. A message can have parts that differ each time: numbers, paths, quoted names, the node and "…".
func TestMessagesOfTroubleshootingExist(t *testing.T) {
	programs := sourcesOfPrograms(t)
	page := regexp.MustCompile(`\s+`).ReplaceAllString(strings.ReplaceAll(read(t, "docs/troubleshooting.md"), "\n- ", "\n\x00"), " ")
	variable := regexp.MustCompile("…|\"[^\"]*\"|\\b\\d\\S*|\\S*/\\S*|--\\S+|: |; | on this node")

	count := 0
	for _, item := range strings.Split(page, "\x00")[1:] {
		beginning := regexp.MustCompile("^(?:`[^`]+`(?:, with |, |, or | or )?)+").FindString(item)
		for _, message := range regexp.MustCompile("`([^`]* [^`]*)`").FindAllStringSubmatch(beginning, -1) {
			for _, part := range variable.Split(message[1], -1) {
				if part = strings.Trim(part, " ,"); len(part) < 8 || ofOthers[part] {
					continue
				}
				count++
				if !strings.Contains(programs, part) {
					t.Errorf("no program has %q of the message %q", part, message[1])
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("the test finds only %d parts of messages in the page", count)
	}
}

// sourcesOfPrograms returns the Go code of the programs, in which texts over several lines are joined.
func sourcesOfPrograms(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range goFiles(t, false, "cmd", "internal", "pkg") {
		all.WriteString(read(t, file))
	}
	return strings.ReplaceAll(regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(all.String(), ""), `\"`, `"`)
}
