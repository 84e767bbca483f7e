// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The errors of Select wrap these errors.
var (
	// ErrUnknown means that the history has no such container or pod.
	ErrUnknown = errors.New("not in the history")
	// ErrInvalid means that a request lacks a part, or that a part is wrong.
	ErrInvalid = errors.New("invalid request")
	// ErrAmbiguous means that the history has several pods of this name.
	ErrAmbiguous = errors.New("several pods have this name")
)

// Selection selects containers. Without a pod, it selects all containers of the node.
type Selection struct{ Namespace, Pod, PodUID, Container string }

// Check returns ErrInvalid if the selection has a namespace or a pod without the other one, or another field without a
// pod.
func (s Selection) Check() error {
	switch {
	case s.Pod == "" && s != (Selection{}):
		return fmt.Errorf("%w: a namespace, a UID and a container belong to a pod; name the pod, or nothing for the whole node", ErrInvalid)
	case s.Pod != "" && s.Namespace == "":
		return fmt.Errorf("%w: name the namespace of pod %q, too", ErrInvalid, s.Pod)
	}
	return nil
}

// Select returns the indexes of the selected tracks in increasing order. If a container was restarted, it selects only
// the newest instance.
func (w *Window) Select(s Selection) ([]int, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	newest, pods := map[[2]string]int{}, map[string]bool{}
	for i := range w.Tracks {
		t := &w.Tracks[i]
		if s.Pod != "" && (t.Pod != s.Pod || t.Namespace != s.Namespace) || s.PodUID != "" && t.PodUID != s.PodUID {
			continue
		}
		pods[t.PodUID] = true
		if s.Container == "" || t.Name == s.Container {
			newest[[2]string{t.PodUID, t.Name}] = i // a later track is a newer instance
		}
	}
	what := fmt.Sprintf("pod %s/%s", s.Namespace, s.Pod)
	switch {
	case s.Pod == "":
	case len(pods) == 0 && w.Incomplete > 0:
		return nil, fmt.Errorf("%w: %s is not recorded: the history has no room for %d containers of this node", ErrUnknown, what, w.Incomplete)
	case len(pods) == 0:
		return nil, fmt.Errorf("%w: %s has no running container on this node, or it has just started", ErrUnknown, what)
	case len(pods) > 1:
		return nil, fmt.Errorf("%w: %s ran twice on this node in the last 15 minutes; name one by its UID", ErrAmbiguous, what)
	case len(newest) == 0:
		return nil, fmt.Errorf("%w: %s has no container %q", ErrUnknown, what, s.Container)
	}
	return slices.Sorted(maps.Values(newest)), nil
}
