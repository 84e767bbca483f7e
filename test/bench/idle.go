// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// plainPlugin subscribes to the hooks that qos-nri-plugin subscribes to, except the validation, and answers with nothing.
type plainPlugin struct{}

// idlePlugin also subscribes to the validation, like qos-nri-plugin.
type idlePlugin struct{ plainPlugin }

func (idlePlugin) ValidateContainerAdjustment(context.Context, *api.ValidateContainerAdjustmentRequest) error {
	return nil
}

func (plainPlugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (plainPlugin) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

func (plainPlugin) StartContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

func (plainPlugin) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (plainPlugin) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}

func (plainPlugin) StopPodSandbox(context.Context, *api.PodSandbox) error { return nil }

func (plainPlugin) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// idle keeps an idle plugin registered until ctx ends.
func idle(ctx context.Context, o options) error {
	slog.SetLogLoggerLevel(slog.LevelError)
	for ctx.Err() == nil {
		if err := serveIdle(ctx, o); err != nil {
			pause.For(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

func serveIdle(ctx context.Context, o options) error {
	plugin, err := idlePluginOf(o)
	if err != nil {
		return err
	}

	s, err := stub.New(plugin, stub.WithPluginName("idle"), stub.WithPluginIdx("10"), stub.WithSocketPath(o.idle),
		stub.WithOnClose(func() {}), stub.WithLogger(silence{}))
	if err != nil {
		return err
	}

	if err := s.Start(ctx); err != nil {
		return err
	}

	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	s.Wait()
	return nil
}

func idlePluginOf(o options) (any, error) {
	switch {
	case o.plain:
		return plainPlugin{}, nil
	case o.calls != "":
		return readBarePlugin(o.calls)
	}
	return idlePlugin{}, nil
}

// silence is a logger for NRI that discards all messages.
type silence struct{}

var _ nrilog.Logger = silence{}

func (silence) Debugf(context.Context, string, ...any) {}
func (silence) Infof(context.Context, string, ...any)  {}
func (silence) Warnf(context.Context, string, ...any)  {}
func (silence) Errorf(context.Context, string, ...any) {}
