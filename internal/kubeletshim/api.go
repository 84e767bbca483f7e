// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podeviction"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
	"github.com/qos-nri/qos-nri-plugin/internal/unoffered"
)

// credentialsInterval is how often the shim reads the credentials again while they cannot be used.
const credentialsInterval = 30 * time.Second

type publisher interface {
	Run(ctx context.Context) error
}

// apiPublishers are the publishers that need the Kubernetes API. The device plugins run without it.
type apiPublishers struct {
	options  Options
	cache    *nodecache.Cache
	client   qosv1alpha1.NodeQOSClient
	registry prometheus.Registerer
	log      *slog.Logger
}

// Run waits for usable credentials, and then publishes with them until ctx ends. If there are no credentials, it returns
// an error unless the shim has device plugins to run.
func (a *apiPublishers) Run(ctx context.Context) error {
	for logged := ""; ; {
		publishers, err := a.connect()
		if err == nil {
			return runAll(ctx, publishers)
		}

		if err.Error() != logged {
			logged = err.Error()
			a.log.Warn("nothing is published to the Kubernetes API", "problem", logged)
		}
		switch {
		case errors.Is(err, kubeapi.ErrNoCredentials) && a.options.publishes(DevicePlugin):
			return nil
		case errors.Is(err, kubeapi.ErrNoCredentials):
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(credentialsInterval):
		}
	}
}

func runAll(ctx context.Context, publishers []publisher) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range publishers {
		group.Go(func() error { return p.Run(ctx) })
	}
	return group.Wait()
}

func (a *apiPublishers) connect() ([]publisher, error) {
	config, err := kubeapi.Config(a.options.Kubeconfig, "qos-kubelet-shim/"+a.options.Version)
	if err != nil {
		return nil, err
	}
	publishers, err := a.publishers(config)
	if err != nil && a.options.Kubeconfig != "" {
		return nil, fmt.Errorf("--kubeconfig %s cannot be used: %w", a.options.Kubeconfig, err)
	}
	return publishers, err
}

// publishers creates the publishers that the options enable. An error means that the credentials in `config` cannot be
// used.
func (a *apiPublishers) publishers(config *rest.Config) ([]publisher, error) {
	client, err := kubeapi.NewCore(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}

	var all []publisher
	writes := kubeapi.NewWrites(a.registry)
	pods := a.podOptions(writes)
	if a.options.publishes(NodeObject) {
		object := nodeobject.New(a.cache, objects, client.Nodes(), a.objectOptions(client, writes))
		pods.RefusedChanges = object.SetRefusedChanges
		all = append(all, object)
	}
	if a.options.usesPods() {
		all = append(all, podstatus.New(a.cache, client, pods))
	}
	if a.options.publishes(Events) {
		all = append(all, unoffered.New(client, objects, unoffered.Options{NodeName: a.options.NodeName, Writes: writes, Log: a.log}))
	}
	if a.options.publishes(Evictions) {
		all = append(all, podeviction.New(a.cache, client, podeviction.Options{
			NodeName: a.options.NodeName, Events: a.options.publishes(Events), Writes: writes, Registry: a.registry, Log: a.log,
		}))
	}
	return all, nil
}

func (a *apiPublishers) objectOptions(client kubeapi.Core, writes *kubeapi.Writes) nodeobject.Options {
	options := nodeobject.Options{
		NodeName: a.options.NodeName, FollowsAnnotations: a.options.FollowAnnotations, Writes: writes, Log: a.log,
	}
	if a.options.publishes(Events) {
		options.RecordEvent = podevents.NewRecorder(client, writes, a.options.NodeName).WriteNode
	}
	if a.options.FollowClaims {
		options.SetClaims = func(ctx context.Context, claims *qosv1alpha1.SetVolumeClaimsRequest) error {
			_, err := a.client.SetVolumeClaims(ctx, claims)
			return err
		}
	}
	return options
}

func (a *apiPublishers) podOptions(writes *kubeapi.Writes) podstatus.Options {
	return podstatus.Options{
		NodeName: a.options.NodeName, Conditions: a.options.publishes(PodConditions), Events: a.options.publishes(Events),
		FollowAnnotations: a.options.FollowAnnotations, Writes: writes, Registry: a.registry, Log: a.log,
		Update: func(ctx context.Context, request *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
			_, err := a.client.UpdateContainerQOSResources(ctx, request)
			return err
		},
	}
}
