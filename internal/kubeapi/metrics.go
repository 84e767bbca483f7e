// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Writes counts what was written to the API. All that are made with one registry are the same.
type Writes struct{ total *prometheus.CounterVec }

// NewWrites makes the counter, or takes the one that registry has. It panics as registry.MustRegister does.
func NewWrites(registry prometheus.Registerer) *Writes {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "qos_shim_api_writes_total", Help: "Requests to the Kubernetes API that write, by kind of object and by what came of them.",
	}, []string{"object", "outcome"})
	err := registry.Register(total)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			return &Writes{existing}
		}
	}
	if err != nil {
		panic(err)
	}
	return &Writes{total}
}

// Count counts a write to an object, e.g. "nodeqosresources/status", that gave err, and gives err.
func (w *Writes) Count(object string, err error) error {
	w.total.WithLabelValues(object, string(OutcomeOf(err))).Inc()
	return err
}
