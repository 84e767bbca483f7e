// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import "log/slog"

// OutcomeLog logs the outcome of a repeated operation when it changes. It does not log an initial success. It is not safe for
// concurrent use.
type OutcomeLog struct {
	// What names the operation, e.g. "publish NodeQOSResources worker-1".
	What string
	Log  *slog.Logger

	last error
}

// Record logs the outcome of an attempt if it differs from the last one. Messages are not compared, because most outcomes have
// one remedy each.
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
