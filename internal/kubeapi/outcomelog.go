// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import "log/slog"

// OutcomeLog logs the outcome of a repeated operation whenever the outcome changes. If the first attempt succeeds,
// OutcomeLog does not log it. OutcomeLog is not safe for concurrent use.
type OutcomeLog struct {
	// What names the operation, e.g. "publish NodeQOSResources worker-1".
	What string
	Log  *slog.Logger

	last error
}

// Record logs the outcome of an attempt if the outcome differs from the last one. It does not compare messages,
// because for most outcomes every message has the same remedy.
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
