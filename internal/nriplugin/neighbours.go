// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// neighbours observes the other NRI plugins of the runtime. NRI lets only one plugin set a value of a container. If two
// plugins set the same field, the runtime does not create the container, and does not report the reason to the plugins.
type neighbours struct {
	mu sync.Mutex
	// creations has the containers for which the plugin has set values. The key is the container's ID. The entry of a
	// container is removed when the runtime has merged the fields of all plugins, or when the creation has failed.
	creations map[string]creation
	// plugins lists the NRI plugins that the runtime called for the most recent creation of a container, e.g. "90-balloons".
	plugins []string
}

type creation struct {
	holder classes.Holder
	set    classes.Adjustment
	// taken has those settings of the container that already had a value when the runtime called the plugin.
	taken classes.Adjustment
}

func names(a classes.Adjustment) string {
	var names []string
	for _, setting := range a.Settings() {
		names = append(names, setting.String())
	}
	return strings.Join(names, ", ")
}

// validates reports whether the runtime supports the hook ValidateContainerAdjustment, which NRI has since version
// 0.10. An older runtime would refuse a subscription to this hook.
func (s *session) validates() bool { return atLeast(s.stub.RuntimeNRIVersion(), "0.10") }

func (s *session) subscription() api.EventMask {
	return events(s.plugin.node.HasPodScope(), s.validates())
}

// created stores which fields the plugin has set for a container that the runtime is about to create.
func (s *session) created(h classes.Holder, a classes.Adjustment) {
	if len(a) == 0 || !s.validates() {
		return
	}

	s.neighbours.mu.Lock()
	defer s.neighbours.mu.Unlock()
	taken := replaced(h.Spec, a)
	h.PodAnnotations, h.ContainerAnnotations = nil, nil
	s.neighbours.creations[h.ID] = creation{h, a, taken}
}

func (n *neighbours) take(id string) (c creation, known bool, plugins []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, known = n.creations[id]
	delete(n.creations, id)
	return c, known, n.plugins
}

func (n *neighbours) see(plugins []*api.PluginInstance) (changed bool, names []string) {
	for _, p := range plugins {
		names = append(names, p.GetIndex()+"-"+p.GetName())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	changed = !slices.Equal(names, n.plugins)
	n.plugins = names
	return changed, names
}

// ValidateContainerAdjustment is called after all plugins have set their fields. It refuses a container if another plugin
// has changed or removed a field that this plugin has set.
func (s *session) ValidateContainerAdjustment(_ context.Context, r *api.ValidateContainerAdjustmentRequest) (err error) {
	defer func(begin time.Time) {
		s.observe("ValidateContainerAdjustment", r.GetPod(), r.GetContainer(), begin, err)
	}(time.Now())
	if changed, names := s.neighbours.see(r.GetPlugins()); changed {
		s.plugin.node.UpdateRuntime(func(r *state.RuntimeInfo) { r.Plugins = names })
	}
	c, known, _ := s.neighbours.take(r.GetContainer().GetId())
	if !known {
		return nil
	}

	now := adjusted(r.GetAdjust())
	for _, setting := range c.set.Settings() {
		if now[setting] == c.set[setting] {
			continue
		}
		err := fmt.Errorf("%s: %w: %s has %q instead of %q; configure the other NRI plugin (%s) so that it does not change this container",
			c.holder, state.ErrAdjustmentChanged, setting, now[setting], c.set[setting], others(r.GetPlugins()))
		return s.plugin.node.Refuse(c.holder, err)
	}
	return nil
}

// notCreated records a refusal if the runtime did not create a container for which the plugin has set values.
func (s *session) notCreated(id string) {
	c, known, plugins := s.neighbours.take(id)
	if !known {
		return
	}

	which := names(c.set)
	if len(c.taken) > 0 {
		which = names(c.taken)
	}
	err := fmt.Errorf("%s: %w: either another NRI plugin also sets %s, or an NRI plugin refused the container (plugins of the runtime: %s); "+
		"see the runtime's error in the pod's events; "+
		"let only one plugin set each field; for block I/O, set Direct: true in the class file",
		c.holder, state.ErrNotCreated, which, orNone(plugins))
	s.plugin.options.Log.Warn("the creation of a container failed after the plugin's hook", "error", s.plugin.node.Refuse(c.holder, err), "fields", which)
}

func others(plugins []*api.PluginInstance) string {
	var names []string
	for _, p := range plugins {
		if p.GetName() != Name {
			names = append(names, p.GetIndex()+"-"+p.GetName())
		}
	}
	return orNone(names)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "not known yet"
	}
	return strings.Join(names, ", ")
}
