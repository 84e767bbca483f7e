// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"log/slog"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/checkpoint"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
)

// restarted is a node as a new process makes it: over the checkpoint of the one before, with class files, and without having seen what
// runs.
func restarted(t *testing.T, runtime reconcile.Runtime, path, text string, kind classes.Kind) *node.Node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	n := node.New(node.Options{Kinds: []classes.Kind{kind}, Changes: checkpoint.Open(path, "boot", log), Log: log})
	n.Connected(runtime, state.RuntimeInfo{Name: "test"})
	configureWith(t, n, text, kind)
	return n
}

// configureWith applies one class file, which must be good.
func configureWith(t *testing.T, n *node.Node, text string, kind classes.Kind) {
	t.Helper()
	config, err := classes.Parse([]classes.File{{Name: "a.yaml", Data: []byte(text)}}, []classes.Kind{kind}, nil)
	if err := n.Configure(t.Context(), classes.FileSet{Config: config, Err: err}); err != nil {
		t.Fatal(err)
	}
}

// rdtOn is resctrl of a host.
func rdtOn(t *testing.T, host rdt.FS) classes.Kind {
	t.Helper()
	return rdt.Kind(rdt.Options{FS: host, Threads: treeOf(t, host), Log: slog.New(slog.DiscardHandler)})
}

func treeOf(t *testing.T, host cgroup.FS) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.Detect(host)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
