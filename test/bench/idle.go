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

// idlePlugin subscribes to the hooks that qos-nri-plugin subscribes to, and answers with nothing.
type idlePlugin struct{}

func (idlePlugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (idlePlugin) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

func (idlePlugin) StartContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

func (idlePlugin) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (idlePlugin) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

// idle keeps an idle plugin registered until ctx ends.
func idle(ctx context.Context, o options) error {
	slog.SetLogLoggerLevel(slog.LevelError)
	for ctx.Err() == nil {
		if err := serveIdle(ctx, o.idle); err != nil {
			pause.For(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

func serveIdle(ctx context.Context, socket string) error {
	s, err := stub.New(idlePlugin{}, stub.WithPluginName("idle"), stub.WithPluginIdx("10"), stub.WithSocketPath(socket),
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

// silence is a logger for NRI.
type silence struct{}

var _ nrilog.Logger = silence{}

func (silence) Debugf(context.Context, string, ...any) {}
func (silence) Infof(context.Context, string, ...any)  {}
func (silence) Warnf(context.Context, string, ...any)  {}
func (silence) Errorf(context.Context, string, ...any) {}
