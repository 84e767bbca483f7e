// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package child_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// patience is how long a test waits for the end of a process. Only a failing test waits that long.
const patience = 30 * time.Second

// helper is the environment variable that makes TestAsAProgramOfItsOwn start processes and then hang.
const helper = "QOS_TEST_CHILD"

// grandchild starts a shell, which starts a process of its own. It returns the PID of that process.
func grandchild(t *testing.T) string {
	t.Helper()
	shell := child.Command(t, "sh", "-c", "sleep 1000 & echo $!; wait")
	output, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	return line(t, output)
}

func line(t *testing.T, output io.Reader) string {
	t.Helper()
	text, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

// awaitEnd waits until a process has ended.
func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") { // init may be slow to reap it
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s still runs: %s", pid, stat)
		}
	}
}

func TestProcessesOfACommandEndWithTheTest(t *testing.T) {
	var pid string
	t.Run("test", func(t *testing.T) { pid = grandchild(t) })
	awaitEnd(t, pid)
}

func TestProcessesOfACommandEndThoughTheTestProgramIsKilled(t *testing.T) {
	program := child.Command(t, os.Args[0], "-test.run", "^TestAsAProgramOfItsOwn$")
	program.Env = append(os.Environ(), helper+"=yes")
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}

	pid := line(t, output)
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, pid)
}

func TestAsAProgramOfItsOwn(t *testing.T) {
	if os.Getenv(helper) == "" {
		t.Skip("TestProcessesOfACommandEndThoughTheTestProgramIsKilled runs this test")
	}
	fmt.Println(grandchild(t))
	select {}
}
