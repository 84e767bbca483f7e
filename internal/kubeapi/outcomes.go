// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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

// NewWrites registers the counter, which all publishers of a process share.
func NewWrites(registry prometheus.Registerer) *Writes {
	return &Writes{promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "qos_shim_api_writes_total", Help: "Write requests to the Kubernetes API, by kind of object and outcome.",
	}, []string{"object", "outcome"})}
}

// Count counts a write to an object, e.g. "nodeqosresources/status". It returns the error of the write unchanged.
func (w *Writes) Count(object string, err error) error {
	w.total.WithLabelValues(object, string(OutcomeOf(err))).Inc()
	return err
}
