// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"time"
)

// trouble returns the actions that disturb the whole node, e.g. kills of the plugin.
func (s *Soak) trouble() []action {
	actions := []action{
		{weight: 10, plan: (*Soak).reload},
		{weight: 2, plan: (*Soak).spoil},
		{weight: 20, plan: (*Soak).kill},
		{weight: 4, plan: (*Soak).stop},
		{weight: 60, plan: (*Soak).startPlugin},
		{weight: 3, plan: (*Soak).restartRuntime},
	}

	if others, ok := s.site.(Others); ok {
		actions = append(actions, action{weight: 3, plan: func(s *Soak) *operation { return s.foreigners(others) }})
	}

	if faults, ok := s.site.(Faults); ok {
		actions = append(actions,
			action{weight: 8, alone: true, plan: func(s *Soak) *operation { return s.refusedChange(faults.RefuseWrite, rdt, "gold", "bronze") }},
			action{weight: 8, alone: true, plan: func(s *Soak) *operation {
				return s.refusedChange(alongside(faults.RefuseUpdate), blockIO, "heavy", "slow")
			}})
	}

	if disks, ok := s.site.(Disks); ok && s.options.Sabotage {
		actions = append(actions, action{weight: 4, plan: func(s *Soak) *operation { return s.toggleDisk(disks) }})
	}

	if saboteur, ok := s.site.(Saboteur); ok && s.options.Sabotage {
		actions = append(actions, action{weight: 6, plan: func(s *Soak) *operation { return s.sabotage(saboteur) }})
	}

	for i := range actions {
		actions[i].trouble = true
	}

	return actions
}

// reload writes another class file. It mostly sends SIGHUP to the plugin; otherwise the plugin finds the file by
// itself.
func (s *Soak) reload() *operation {
	s.files++
	next := s.file.changed(s.random, s.files)
	return s.write("reload", next)
}

// spoil writes a class file with an error. The previous class file must stay in force.
func (s *Soak) spoil() *operation {
	s.files++
	return s.write("wrong file", s.file.broken(s.random, s.files))
}

func (s *Soak) write(action string, next classFile) *operation {
	s.file = next
	s.known[next.number] = next
	atOnce := s.random.IntN(4) > 0
	return &operation{action: action, what: fmt.Sprintf("%+v, at once: %t", next.short(), atOnce), judged: true,
		do: func(context.Context) error {
			if err := s.site.WriteClasses(next.text()); err != nil || !atOnce {
				return err
			}
			return s.site.Hangup()
		}}
}

// short returns `c` with the invalid text shortened for the output.
func (c classFile) short() classFile {
	c.wrong = c.wrong[:min(len(c.wrong), 20)]
	return c
}

// kill kills the plugin at once, or during one of its next writes.
func (s *Soak) kill() *operation {
	if !s.pluginRuns() {
		return nil
	}

	if s.random.IntN(6) == 0 {
		return &operation{action: "kill", judged: true,
			do: func(ctx context.Context) error { return s.site.KillPlugin(ctx, 0) }}
	}

	provoke := choose(s.random, []action{
		{weight: 4, plan: (*Soak).reload}, {weight: 4, plan: onRunning((*Soak).update)},
		{weight: 1, plan: (*Soak).newPod}, {weight: 1, plan: (*Soak).restartRuntime},
	})

	inner, at := provoke.plan(s), 1+s.random.IntN(6)
	if inner == nil {
		return nil
	}

	return &operation{
		action: "kill in " + inner.action, what: fmt.Sprintf("at write %d: %s", at, inner.what), then: inner.then, touches: inner.touches,
		do: func(ctx context.Context) error {
			if err := s.site.KillPlugin(ctx, at); err != nil {
				return err
			}
			return inner.do(ctx)
		},
	}
}

func (s *Soak) stop() *operation {
	if !s.pluginRuns() {
		return nil
	}
	return &operation{action: "stop", judged: true, do: s.site.StopPlugin}
}

func (s *Soak) startPlugin() *operation {
	if s.pluginRuns() {
		return nil
	}
	return &operation{action: "start plugin", judged: true, do: s.site.StartPlugin}
}

func (s *Soak) restartRuntime() *operation {
	s.restarted = time.Now()
	return &operation{action: "restart runtime", judged: true, do: s.site.RestartRuntime}
}

// foreigners changes a resctrl group of another program, which the plugin must not change.
func (s *Soak) foreigners(others Others) *operation {
	n := s.random.IntN(1 << 16)
	return &operation{action: "foreign group", what: fmt.Sprint(n), judged: true,
		do:   func(ctx context.Context) error { return others.ChangeForeign(ctx, n) },
		then: func(error) { s.foreignChanged = true }}
}

func (s *Soak) toggleDisk(disks Disks) *operation {
	return &operation{action: "disk", judged: true, then: func(error) { s.sabotaged = time.Now() }, do: disks.ToggleDisk}
}

// sabotage changes the plugin's groups and limits.
func (s *Soak) sabotage(saboteur Saboteur) *operation {
	group := "qos-" + pick(s.random, "gold", "silver", "bronze")
	d := &operation{action: "sabotage", judged: true, then: func(error) { s.sabotaged = time.Now() }}
	c := s.anyContainer(running)
	switch s.random.IntN(8) {
	case 0, 1:
		d.what, d.do = "remove "+group, func(ctx context.Context) error { return saboteur.RemoveGroup(ctx, group) }
	case 2, 3:
		schemata := pick(s.random, "L3:0=1\n", "L3:1=3\n", "MB:0=50\n")
		d.what, d.do = fmt.Sprintf("write %q to %s", schemata, group), func(ctx context.Context) error {
			return saboteur.RewriteGroup(ctx, group, schemata)
		}
	case 4:
		again := s.random.IntN(2) == 0
		d.what, d.do = fmt.Sprintf("unmount resctrl, and mount it again: %t", again), func(ctx context.Context) error {
			return saboteur.Remount(ctx, again)
		}
		d.then = func(error) { s.foreignChanged, s.sabotaged = true, time.Now() }
	case 5, 6:
		if c == nil {
			return nil
		}
		d.what, d.do = "move a thread of "+c.String(), func(ctx context.Context) error { return saboteur.Stray(ctx, c.id) }
	case 7:
		if c == nil {
			return nil
		}
		d.what, d.do = "take the limits of "+c.String(), func(ctx context.Context) error { return saboteur.Unlimit(ctx, c.id) }
	}

	return d
}
