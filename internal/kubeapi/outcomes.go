// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// OutcomeLog logs the outcome of a repeated operation whenever the outcome changes. If the first attempt succeeds,
// OutcomeLog does not log it. OutcomeLog is not safe for concurrent use.
type OutcomeLog struct {
	// `What` names the operation, e.g. "publish NodeQOSResources worker-1".
	What string
	Log  *slog.Logger

	last error
}

// Record logs an outcome that differs from the previous attempt's outcome. It also logs the outcome Failed if only the
// message has changed. Each of the other outcomes has only one remedy, whatever the message is.
func (l *OutcomeLog) Record(err error) {
	outcome, last := OutcomeOf(err), OutcomeOf(l.last)
	switch {
	case outcome == last && (outcome != Failed || err.Error() == l.last.Error()):
	case err == nil:
		l.Log.Info("works again", "what", l.What)
	default:
		l.Log.Warn("failed, trying again", "what", l.What, "problem", Explain(err))
	}
	l.last = err
}

// Writes counts write requests to the API server.
type Writes struct{ total *prometheus.CounterVec }

// NewWrites registers the counter. If the registry already has the counter, NewWrites uses it. NewWrites panics in
// the same cases as registry.MustRegister.
func NewWrites(registry prometheus.Registerer) *Writes {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "qos_shim_api_writes_total", Help: "Write requests to the Kubernetes API, by kind of object and outcome.",
	}, []string{"object", "outcome"})
	err := registry.Register(total)

	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*prometheus.CounterVec); ok {
			return &Writes{existing}
		}
	}
	if err != nil {
		panic(err)
	}
	return &Writes{total}
}

// Count counts a write to an object, e.g. "nodeqosresources/status". It returns the error of the write unchanged.
func (w *Writes) Count(object string, err error) error {
	w.total.WithLabelValues(object, string(OutcomeOf(err))).Inc()
	return err
}
