// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// clusters is the number of clusters that run side by side. Most tests spend their time waiting; a test whose node is a
// VM keeps a CPU busy.
const clusters = 3

// seconds has the approximate duration of each slow test while other clusters run. A test that is not listed takes a
// few seconds.
var seconds = map[string]int{
	"TestVirtualNodeIntel": 555, "TestNodes": 430, "TestDaemonSet": 310, "TestStatefulSetVolumes": 290, "TestPrograms": 290,
	"TestNoOrderStopsPodsThatAskForNothing": 245, "TestVirtualNodeAMD": 200, "TestDRA": 175, "TestChart": 125, "TestRequests": 110,
	"TestTheShimIsSmall": 85, "TestDRAManifests": 40, "TestSecretsForExpansion": 40, "TestDefaultClassesOfClaims": 25,
	"TestCreationsTakeHardlyLongerWithThePlugin": 15, "TestDefaultStorageClass": 15,
	"TestDRALoad": 950, "TestLargeCluster": 700, "TestResizeOfManyStatefulSets": 220, "TestDRAFigures": 200, "TestManyClaimsOfOneClass": 140,
}

// divide returns the tests of each of `n` clusters, so that all clusters take about the same time. There are fewer clusters than `n` if
// there are fewer tests.
func divide(tests []string, seconds map[string]int, n int) [][]string {
	tests = slices.Clone(tests)
	slices.SortStableFunc(tests, func(a, b string) int { return seconds[b] - seconds[a] })
	parts := make([][]string, max(1, min(n, len(tests))))
	took := make([]int, len(parts))

	for _, test := range tests {
		least := slices.Index(took, slices.Min(took))
		parts[least] = append(parts[least], test)
		took[least] += max(1, seconds[test])
	}
	return parts
}

// sideBySide runs each part of the tests in a cluster of its own, all clusters at the same time, and returns the largest exit code. It
// prints the whole output of one cluster before that of the next.
func sideBySide(ctx context.Context, built string, parts [][]string) int {
	codes := make([]int, len(parts))
	outputs := make([]relay, len(parts))
	ended := make([]chan struct{}, len(parts))
	for i := range parts {
		ended[i] = make(chan struct{})
		skipped := slices.Concat(slices.Concat(parts[:i], parts[i+1:])...)
		go func() {
			defer close(ended[i])
			codes[i] = inside(ctx, built, skipped, &outputs[i])
		}()
	}

	var err error
	for i := range parts {
		err = errors.Join(err, outputs[i].passOn(os.Stdout))
		<-ended[i]
	}
	if err != nil {
		return failed(err)
	}

	return slices.Max(codes)
}

// relay is a writer that stores the output until passOn is called.
type relay struct {
	mu   sync.Mutex // guards what follows
	kept bytes.Buffer
	to   io.Writer
}

func (r *relay) Write(data []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to != nil {
		return r.to.Write(data)
	}
	return r.kept.Write(data)
}

// passOn writes the stored output to a writer. Later output goes to this writer at once.
func (r *relay) passOn(to io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	_, err := r.kept.WriteTo(to)
	return err
}

// TestEveryTestRunsInOneCluster: each test, the longest first, goes to the cluster that has the least work so far. A test
// without a duration counts as one second.
func TestEveryTestRunsInOneCluster(t *testing.T) {
	seconds := map[string]int{"Test50": 50, "Test40": 40, "Test30": 30, "Test15": 15}
	tests := []string{"TestShort", "Test15", "Test30", "Test40", "Test50"}
	want := [][]string{{"Test50", "Test15", "TestShort"}, {"Test40", "Test30"}}
	if diff := cmp.Diff(want, divide(tests, seconds, 2)); diff != "" {
		t.Errorf("two clusters (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]string{{"TestShort"}}, divide([]string{"TestShort"}, seconds, 2)); diff != "" {
		t.Errorf("one test (-want +got):\n%s", diff)
	}
}

func TestRelayKeepsOutputUntilItMayPassItOn(t *testing.T) {
	var r relay
	var to strings.Builder
	write := func(text string) {
		_, err := io.WriteString(&r, text)
		must(t, err)
	}

	write("a")
	if to.Len() > 0 {
		t.Errorf("%q was passed on before the call of passOn", &to)
	}

	must(t, r.passOn(&to))
	write("b")
	if got := to.String(); got != "ab" {
		t.Errorf("passed on %q, want ab", got)
	}
}
