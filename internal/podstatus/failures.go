// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// logInterval is the minimum time between two log lines that report the beginning of the same failure.
const logInterval = time.Hour

// failure identifies a group of failed attempts that have the same remedy. The attempts may concern several pods.
// `namespace` is empty if the API server failed, because such a failure affects all namespaces.
type failure struct {
	what, namespace string
	outcome         kubeapi.Outcome
}

// attempt is what was tried for a pod, e.g. "write events of pods". The pod is given as namespace/name.
type attempt struct{ what, pod string }

// failureLog deduplicates log lines about many pods. It logs the beginning of a failure at the first pod that has the
// failure, and the end when the last pod no longer has it. It is safe for concurrent use.
type failureLog struct {
	log *slog.Logger

	mu     sync.Mutex // guards all fields below
	failed map[attempt]failure
	logged map[failure]time.Time // when the beginning was logged
	open   map[failure]bool      // whether the end is still to be logged
}

func newFailureLog(log *slog.Logger) *failureLog {
	return &failureLog{log: log, failed: map[attempt]failure{}, logged: map[failure]time.Time{}, open: map[failure]bool{}}
}

func (l *failureLog) record(what, pod string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.failed[attempt{what, pod}]
	if err == nil {
		delete(l.failed, attempt{what, pod})
		if l.close(before) {
			l.log.Info("works again", before.attributes()...)
		}
		return
	}

	now := failure{what: what, outcome: kubeapi.OutcomeOf(err)}
	if !kubeapi.ServerFailed(err) {
		now.namespace, _, _ = strings.Cut(pod, "/")
	}
	l.failed[attempt{what, pod}] = now
	l.close(before)
	if !l.open[now] && time.Since(l.logged[now]) >= logInterval {
		l.logged[now], l.open[now] = time.Now(), true
		l.log.Warn("failed, trying again", append(now.attributes(), "problem", kubeapi.Explain(err))...)
	}
}

// close ends a failure whose beginning was logged, if no pod has it any more. It reports whether it did so. The caller holds mu.
func (l *failureLog) close(f failure) bool {
	if !l.open[f] || slices.Contains(slices.Collect(maps.Values(l.failed)), f) {
		return false
	}
	delete(l.open, f)
	return true
}

func (l *failureLog) forget(pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a, f := range l.failed {
		if a.pod == pod {
			delete(l.failed, a)
			l.close(f)
		}
	}
	maps.DeleteFunc(l.logged, func(f failure, at time.Time) bool { return !l.open[f] && time.Since(at) >= logInterval })
}

func (f failure) attributes() []any {
	if f.namespace == "" {
		return []any{"what", f.what}
	}
	return []any{"what", f.what, "namespace", f.namespace}
}
