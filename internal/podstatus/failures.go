// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// logInterval is the shortest time between two lines that report the begin of the same failure.
const logInterval = time.Hour

// failure is one kind of failure, which has one remedy. It is of one namespace, as policies are, or of the server and of none.
type failure struct {
	what, namespace string
	outcome         kubeapi.Outcome
}

func (f failure) attributes() []any {
	list := []any{"what", f.what}
	if f.namespace != "" {
		list = append(list, "namespace", f.namespace)
	}
	return list
}

// affected are the pods that have a failure.
type affected struct {
	pods   map[string]bool // by namespace/name
	logged time.Time
	// open is true from the line that reports the failure to the line that reports its end.
	open bool
}

// failureLog deduplicates log lines about many pods: it reports a failure when the first pod has it and its end when no pod has it.
// It is safe for concurrent use.
type failureLog struct {
	log *slog.Logger

	mu       sync.Mutex // guards failures
	failures map[failure]*affected
}

// record takes the outcome of a try for a pod.
func (l *failureLog) record(what, pod string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := failure{what: what, outcome: kubeapi.OutcomeOf(err)}
	if !kubeapi.ServerFailed(err) {
		now.namespace, _, _ = strings.Cut(pod, "/")
	}

	for f, a := range l.failures {
		if f.what != what || f == now || !a.pods[pod] {
			continue
		}
		delete(a.pods, pod)
		if err == nil && len(a.pods) == 0 && a.open {
			a.open = false
			l.log.Info("works again", f.attributes()...)
		}
	}
	if err != nil {
		l.begin(now, pod, err)
	}
}

func (l *failureLog) begin(f failure, pod string, err error) {
	a := l.failures[f]
	if a == nil {
		a = &affected{pods: map[string]bool{}}
		l.failures[f] = a
	}
	a.pods[pod] = true

	if !a.open && time.Since(a.logged) >= logInterval {
		a.logged, a.open = time.Now(), true
		l.log.Warn("failed, trying again", append(f.attributes(), "problem", kubeapi.Explain(err))...)
	}
}

// forget drops a deleted pod, and failures that ended long ago.
func (l *failureLog) forget(pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.failures, func(_ failure, a *affected) bool {
		delete(a.pods, pod)
		return len(a.pods) == 0 && time.Since(a.logged) >= logInterval
	})
}
