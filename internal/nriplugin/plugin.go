// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nriplugin registers with the container runtime over NRI, stays registered, and passes the runtime's hooks to the node.
package nriplugin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
)

// Name is the plugin's name in NRI. A pod that must not run without the plugin lists this name in its annotation
// required-plugins.noderesource.dev.
const Name = "qos-nri-plugin"

// defaultRequestTimeout is NRI's default request timeout. The plugin assumes this timeout if the runtime reports none
// (NRI before 0.8).
const defaultRequestTimeout = 2 * time.Second

// Options has the settings of a Plugin.
type Options struct {
	// Socket is the runtime's NRI socket. Index is the plugin's two-digit NRI index. The runtime calls its NRI plugins in
	// the order of their indexes.
	Socket, Index string
	// Dial connects to Socket. If it is nil, the plugin opens a connection to the unix socket.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
	// Observe is called after every hook. It may be nil.
	Observe func(Hook)
	Log     *slog.Logger
}

// Hook describes a finished call of a hook.
type Hook struct {
	Name string
	// Pod and Container are the pod and the container of the call. Container is nil in hooks about a pod. Both are nil
	// if the call names neither.
	Pod       *api.PodSandbox
	Container *api.Container
	Began     time.Time
	Took      time.Duration
	// Err is the error that the hook returned to the runtime. It is nil if the hook succeeded.
	Err error
}

// Plugin keeps a node registered with the container runtime.
type Plugin struct {
	node    *node.Node
	options Options
	refresh chan struct{}
	// `reconciles` counts the running calls of Reconcile. Each synchronization starts one call. Run waits for all of
	// them before it returns.
	reconciles sync.WaitGroup
}

// New returns a plugin for a node. It starts nothing.
func New(n *node.Node, o Options) *Plugin {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, socket string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	if o.Observe == nil {
		o.Observe = func(Hook) {}
	}
	return &Plugin{node: n, options: o, refresh: make(chan struct{}, 1)}
}

// Refresh registers the plugin again if a new configuration needs other hooks. It must be called after each change of
// the node's configuration.
func (p *Plugin) Refresh() {
	select {
	case p.refresh <- struct{}{}:
	default:
	}
}

// events returns the hooks to which the plugin must subscribe. RunPodSandbox is needed only for pod-scope resources. Validation is
// possible only if the runtime supports it.
func events(podScope, validates bool) api.EventMask {
	var mask api.EventMask
	mask.Set(api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_UPDATE_CONTAINER, api.Event_POST_UPDATE_CONTAINER,
		api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER,
		api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX)
	if validates {
		mask.Set(api.Event_VALIDATE_CONTAINER_ADJUSTMENT)
	}
	if podScope {
		mask.Set(api.Event_RUN_POD_SANDBOX)
	}
	return mask
}

// logger is the logger for the NRI library. It logs the library's messages of level info at level debug.
type logger struct{ log *slog.Logger }

func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.put(ctx, slog.LevelDebug, format, args)
}
func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.put(ctx, slog.LevelDebug, format, args)
}
func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.put(ctx, slog.LevelWarn, format, args)
}
func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.put(ctx, slog.LevelError, format, args)
}

func (l logger) put(ctx context.Context, level slog.Level, format string, args []any) {
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, fmt.Sprintf(format, args...), "library", "nri")
	}
}
