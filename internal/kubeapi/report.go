// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import "log/slog"

// Report says in the log how something goes that is tried over and over: one line when the outcome is another than before. It begins
// with things going well. It is not safe for concurrent use.
type Report struct {
	// What is what is tried, e.g. "write NodeQOSResources worker-1".
	What string
	Log  *slog.Logger

	last error
}

// Tell takes what came of a try.
func (r *Report) Tell(err error) {
	switch {
	case same(r.last, err):
	case err == nil:
		r.Log.Info("works again", "what", r.What)
	default:
		r.Log.Warn("failed, trying again", "what", r.What, "problem", Explain(err))
	}
	r.last = err
}

// same says whether a person would see no news in b after a. Most outcomes have one remedy each, while their words may differ at every try.
func same(a, b error) bool {
	outcome := OutcomeOf(a)
	return outcome == OutcomeOf(b) && (outcome != Failed || a.Error() == b.Error())
}
