// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"errors"
	"fmt"
	"path"

	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// fewRounds is the largest number of rounds with which a soak passes even if no container was monitored.
const fewRounds = 2

// monitors counts the monitored containers of a settled node.
func (s *Summary) monitors(w invariant.World) {
	for _, group := range w.Kernel.OwnMonitors() {
		s.monitored[path.Base(group)] = true
	}
	if !w.AllMonitored() {
		s.notAll++
	}
}

// idle returns ErrViolated if the soak had more than fewRounds rounds, and no container was monitored in any of them.
// Such a soak has not tested monitoring.
func (s *Summary) idle() error {
	if s.round <= fewRounds || len(s.monitored) > 0 {
		return nil
	}
	const wrong = "no container was monitored"
	s.violations = append(s.violations, wrong)
	return errors.Join(ErrViolated, errors.New(wrong))
}

// unmonitored checks that no monitoring group with the plugin's prefix is left in any control group. All containers have
// ended.
func (s *Soak) unmonitored() error {
	kernel, err := invariant.KernelOf(s.site.Host(), invariant.Live{})
	if err != nil {
		return fmt.Errorf("look for monitoring groups: %w", err)
	}
	var wrong []string
	for _, group := range kernel.OwnMonitors() {
		wrong = append(wrong, fmt.Sprintf("monitoring group %s is left after the end of all containers", group))
	}
	return s.violated(wrong)
}
