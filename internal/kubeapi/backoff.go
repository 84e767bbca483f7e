// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Waiting after a failure: up to firstWait, then up to twice that and so on, until longestWait. The time in fact is drawn at random from
// the whole range, so that nodes that failed together do not come back together.
const (
	firstWait   = time.Second
	longestWait = time.Minute
)

// Backoff says how long to wait after failures in a row. Its zero value has seen none.
type Backoff struct{ failures int }

// Next says how long to wait after err; random is from [0, 1). What a person has to mend is looked at again after the longest step at
// once; a server that says when to come back is not asked before.
func (b *Backoff) Next(err error, random float64) time.Duration {
	step := longestWait
	if !needsPerson(err) && b.failures < 10 {
		step = min(firstWait<<b.failures, longestWait)
	}
	b.failures++
	var asked time.Duration
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		asked = time.Duration(seconds) * time.Second
	}
	return asked + time.Duration(random*float64(step))
}

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }

func needsPerson(err error) bool {
	var problem *Problem
	if errors.As(err, &problem) {
		return true
	}
	switch OutcomeOf(err) {
	case Forbidden, Unauthorized, NoSuchKind, Invalid:
		return true
	}
	return false
}
