// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/soak/steps"
)

func options(seed uint64, rounds int) steps.Options {
	return steps.Options{
		Seed: seed, For: time.Hour, Rounds: rounds, Steps: 20, Patience: time.Minute, Sabotage: true, Progress: time.Minute, Out: io.Discard,
	}
}

func TestAShortSoakFindsNoViolation(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), options(1, 8), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"seed 1", "8 rounds", "0 violations", "create", "update", "ClassFull", "goroutines", "containers monitored after a round: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary does not contain %q:\n%s", want, out.String())
		}
	}
}

func TestAnInterruptEndsTheSoakWithASummary(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	if err := run(ctx, options(1, 0), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "0 rounds") {
		t.Errorf("the soak has continued, or has printed no summary:\n%s", out.String())
	}
}

func TestAViolationIsPrintedWithTheSeedAndTheLastOperations(t *testing.T) {
	o := options(3, 1)
	o.Patience = 0 // no node settles in that time
	var out strings.Builder
	if err := run(t.Context(), o, &out); !errors.Is(err, steps.ErrViolated) {
		t.Errorf("error is %v", err)
	}
	for _, want := range []string{"with seed 3", "Violations:", "the node has not settled after 0s", "The end of the log:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not contain %q:\n%s", want, out.String())
		}
	}
}

// TestASeedSelectsTheOperations compares only the operations before the first concurrent operation and before the first
// kill of the plugin. The outcomes of these depend on timing, and the choice of later operations depends on the
// outcomes.
func TestASeedSelectsTheOperations(t *testing.T) {
	const least = 10
	first := surelyDone(t, 23)
	if len(first) < least {
		t.Fatalf("only %q is deterministic; choose another seed", first)
	}
	if diff := cmp.Diff(first, surelyDone(t, 23)); diff != "" {
		t.Errorf("the same seed results in other operations:\n%s", diff)
	}
	if other := surelyDone(t, 24); cmp.Equal(first[:1], other[:1]) {
		t.Errorf("another seed begins with the same operations: %q", other)
	}
}

// surelyDone returns the operations of a round before the first one whose outcome depends on timing.
func surelyDone(t *testing.T, seed uint64) []string {
	t.Helper()
	var printed strings.Builder
	o := options(seed, 1)
	o.Operations = &printed
	if err := run(t.Context(), o, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}

	var operations []string
	for line := range strings.Lines(printed.String()) {
		operation, _, _ := strings.Cut(line, " -> ")
		step, what, _ := strings.Cut(operation, ": ")
		if len(operations) > 0 && strings.HasPrefix(operations[len(operations)-1], step+": ") {
			return operations[:len(operations)-1] // the last two operations have the same step, so they are concurrent
		}
		if strings.HasPrefix(what, "kill") {
			return operations
		}
		operations = append(operations, operation)
	}

	return operations
}

func TestOnlyTheEndOfTheLogIsKept(t *testing.T) {
	var log tail
	for range 100_000 {
		_, _ = log.Write([]byte("something happened\n"))
	}
	text := log.String()
	if len(text) > keptLog || len(text) < keptLog/2 || !strings.HasPrefix(text, "something") || !strings.HasSuffix(text, "happened\n") {
		t.Errorf("%d bytes, from %q", len(text), text[:min(len(text), 20)])
	}
	if len(log.text) > 2*keptLog {
		t.Errorf("%d bytes of the log are kept", len(log.text))
	}
}

func TestIgnoredViolationsAreThoseThatMatch(t *testing.T) {
	var ignored regexpFlag
	if ignored.matches("anything") {
		t.Error("a line matches, although there is no expression")
	}
	if err := ignored.Set("^class .* over"); err != nil {
		t.Fatal(err)
	}
	if !ignored.matches("class gold is over") || ignored.matches("a class is over") {
		t.Error("the expression matches another line")
	}
	if err := ignored.Set("("); err == nil {
		t.Error("the invalid expression \"(\" is accepted")
	}
}
