// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"slices"
)

// These are the errors of Select. Other errors wrap them.
var (
	// ErrUnknown means that the history has no such container or pod.
	ErrUnknown = errors.New("not in the history")
	// ErrAmbiguous means that the history has several pods of this name.
	ErrAmbiguous = errors.New("several pods have this name")
)

// Selection selects containers. Without a pod, it selects all containers of the node.
type Selection struct{ Namespace, Pod, PodUID, Container string }

// Select returns the indexes of the selected tracks in increasing order. Of the instances of a container, it is the newest.
func (w *Window) Select(s Selection) (selected []int, err error) {
	newest, pods := map[[2]string]int{}, map[string]bool{}
	for i := range w.Tracks {
		t := &w.Tracks[i]
		if s.Pod != "" && (t.Pod != s.Pod || t.Namespace != s.Namespace) || s.PodUID != "" && t.PodUID != s.PodUID {
			continue
		}
		pods[t.PodUID] = true
		if s.Container == "" || t.Name == s.Container {
			newest[[2]string{t.PodUID, t.Name}] = i // the tracks are in the order of their beginnings
		}
	}
	what := fmt.Sprintf("pod %s/%s", s.Namespace, s.Pod)
	switch {
	case s.Pod == "":
	case len(pods) == 0:
		return nil, fmt.Errorf("%w: %s has no running container on this node, or it has just started", ErrUnknown, what)
	case len(pods) > 1:
		return nil, fmt.Errorf("%w: %s ran twice on this node in the last 15 minutes; name one by its UID", ErrAmbiguous, what)
	case len(newest) == 0:
		return nil, fmt.Errorf("%w: %s has no container %q", ErrUnknown, what, s.Container)
	}
	for _, i := range newest {
		selected = append(selected, i)
	}
	slices.Sort(selected)
	return selected, nil
}
