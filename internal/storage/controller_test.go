// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
)

func TestAClaimHasAnEventForEachNewProblem(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	c := &controller{recorder: recorder, reported: map[string]map[types.UID]string{}}
	claim := &corev1.PersistentVolumeClaim{}
	claim.UID = "c1"
	wrong := []problem{{claim, errors.New("wrong")}}
	for _, step := range []struct {
		name     string
		problems []problem
		events   int
	}{
		{"a problem", wrong, 1}, {"the same problem", wrong, 0}, {"another problem", []problem{{claim, errors.New("missing")}}, 1},
		{"no problem", nil, 0}, {"the first problem again", wrong, 1},
		{"the same problem with another one", []problem{wrong[0], {claim, errors.New("missing")}}, 0}, {"the same problems", wrong, 0},
	} {
		c.report("node-1", step.problems)
		if got := len(recorder.Events); got != step.events {
			t.Errorf("%s: %d events, want %d", step.name, got, step.events)
		}
		for range len(recorder.Events) {
			<-recorder.Events
		}
	}
}

func TestEventsAreOneShortLine(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	c := &controller{recorder: recorder, reported: map[string]map[types.UID]string{}}
	c.report("node-1", []problem{{&corev1.PersistentVolumeClaim{}, errors.New(strings.Repeat("x\n", 1000))}})
	_, note, _ := strings.Cut(<-recorder.Events, "NotEnforced ")
	if len(note) > 1024 || strings.Contains(note, "\n") {
		t.Errorf("%d bytes: %q", len(note), note)
	}
}

func TestNodesWithoutProblemsAreNotRemembered(t *testing.T) {
	c := &controller{recorder: events.NewFakeRecorder(1), reported: map[string]map[types.UID]string{}}
	c.report("node-1", []problem{{&corev1.PersistentVolumeClaim{}, errors.New("wrong")}})
	c.report("node-1", nil)
	if len(c.reported) > 0 {
		t.Errorf("reported has %v", c.reported)
	}
}
