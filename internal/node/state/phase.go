// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

// Phase is the phase of a Holding between its creation and its end.
type Phase int

const (
	// Created means that the first process of the holder has not been started yet.
	Created Phase = iota + 1
	// Enforcing means that a hook enforces the classes of the holder. The reconciler leaves the holder alone.
	Enforcing
	// Running means that the holder runs, and was admitted to its desired classes.
	Running
	// Unverified means that the holder was found running, and may have been created while the plugin was not connected.
	// The reconciler reads its classes from the kernel.
	Unverified
	// Waiting means that the holder runs without the classes that it requests. The reconciler retries the request.
	Waiting
	// Ending means that the start of the holder was refused, and that its processes are about to be ended. The
	// reconciler leaves the holder alone, so that it does not admit a container that is dying.
	Ending
	// NotInForce means that the holder runs although its start was refused, or that a volume runs without its limits. This
	// ends when the kernel shows the holder in all its classes.
	NotInForce
	// WaitingNotInForce means that the holder runs although its start was refused, and waits like a holder in the phase Waiting.
	WaitingNotInForce
)

// `phases` and `events` are the numbers of phases and of events, including an unused 0.
const (
	phases = WaitingNotInForce + 1
	events = inClasses + 1
)

// String returns the name of the phase for logs and tests.
func (p Phase) String() string {
	return [phases]string{
		"", "Created", "Enforcing", "Running", "Unverified", "Waiting", "Ending", "NotInForce", "WaitingNotInForce",
	}[p]
}

// event is what can happen to a Holding.
type event int

const (
	started        event = iota + 1 // the first process is about to run, and no hook enforces anything
	hookBegan                       // a hook enforces the classes
	hookEnded                       // the hook has enforced the classes
	startRefused                    // the hook returns an error, and the processes are about to be ended
	processesEnded                  // the processes of a container whose start was refused were ended, as far as possible
	notEnforced                     // the limits of a volume could not be put in force
	postponed                       // the request cannot be admitted now
	admitted                        // the postponed request was admitted
	verified                        // the kernel has shown the classes
	inClasses                       // the kernel shows all desired classes
)

// after returns the phase that follows when an event happens. It is the only place that decides about phases.
func (p Phase) after(e event) Phase { return transitions()[p][e] }

// transitions returns, for each phase, the phases that follow the events in the order of their constants.
func transitions() [phases][events]Phase {
	//   started, hookBegan, hookEnded, startRefused, processesEnded, notEnforced, postponed, admitted, verified, inClasses
	return [phases][events]Phase{
		Created:    {0, Running, Enforcing, Created, Ending, Created, Created, Waiting, Created, Created, Created},
		Enforcing:  {0, Enforcing, Enforcing, Running, Ending, Running, NotInForce, Waiting, Enforcing, Enforcing, Enforcing},
		Running:    {0, Running, Enforcing, Running, Ending, Running, NotInForce, Waiting, Running, Running, Running},
		Unverified: {0, Unverified, Enforcing, Unverified, Ending, Unverified, Unverified, Waiting, Unverified, Running, Unverified},
		Waiting:    {0, Waiting, Waiting, Waiting, Ending, Waiting, WaitingNotInForce, Waiting, Running, Waiting, Waiting},
		Ending:     {0, Ending, Ending, Ending, Ending, NotInForce, Ending, Ending, Ending, Ending, Ending},
		NotInForce: {0, NotInForce, NotInForce, Running, Ending, NotInForce, NotInForce, WaitingNotInForce, NotInForce, NotInForce, Running},
		WaitingNotInForce: {
			0, WaitingNotInForce, WaitingNotInForce, WaitingNotInForce, Ending, WaitingNotInForce, WaitingNotInForce, WaitingNotInForce,
			NotInForce, WaitingNotInForce, WaitingNotInForce,
		},
	}
}

// Started reports whether the first process of the holder has been started.
func (p Phase) Started() bool { return p != Created }

// Reconciled reports whether the reconciler compares the holder with its desired classes.
func (p Phase) Reconciled() bool { return p != Created && p != Enforcing && p != Ending }

// isWaiting reports whether the reconciler retries the request of the holder.
func (p Phase) isWaiting() bool { return p == Waiting || p == WaitingNotInForce }

// isRefused reports whether a refusal is reported as long as the holder is in this phase.
func (p Phase) isRefused() bool { return p.isWaiting() || p == Ending || p == NotInForce }

// phaseOf returns the phase of a holder that is adopted.
func phaseOf(started bool) Phase {
	if started {
		return Running
	}
	return Created
}
