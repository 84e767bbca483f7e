// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver stands in for an API server in tests of many nodes: it counts requests, and can be down.
package apiserver

import (
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// Server counts requests. It is safe for concurrent use.
type Server struct {
	mu       sync.Mutex // guards all below
	down     bool
	since    time.Time
	bySecond map[int]int // requests by second, counted from the time `since`
	byVerb   map[string]int
	version  int
	watches  []*watch.RaceFreeFakeWatcher
}

// New makes a server that is up.
func New() *Server {
	s := &Server{}
	s.SetDown(false)
	return s
}

// Ask counts a request, and returns an error while the server is down.
func (s *Server) Ask(verb string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bySecond[int(time.Since(s.since)/time.Second)]++
	s.byVerb[verb]++
	if s.down {
		return apierrors.NewServiceUnavailable("down")
	}
	return nil
}

// Watch counts a request, and returns a watch that lasts until the server goes down.
func (s *Server) Watch() (watch.Interface, error) {
	if err := s.Ask("watch"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := watch.NewRaceFreeFake()
	s.watches = append(s.watches, w)
	return w, nil
}

// SetDown takes the server down or brings it back, and resets the counts. All watches end when the server goes down.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.since, s.bySecond, s.byVerb = down, time.Now(), map[int]int{}, map[string]int{}
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

// Counted returns the maximum number of requests within a second, and the number of requests by verb.
func (s *Server) Counted() (peak int, byVerb map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.bySecond {
		peak = max(peak, n)
	}
	return peak, s.byVerb
}

// NextVersion returns a new resource version.
func (s *Server) NextVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	return strconv.Itoa(s.version)
}
