// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodefeed"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
)

// credentialsInterval is how often credentials that cannot be read are looked at again.
const credentialsInterval = 30 * time.Second

// apiPublishers are the parts that need the Kubernetes API. Whatever becomes of them, the kubelet is told.
type apiPublishers struct {
	options  Options
	feed     *nodefeed.Feed
	update   podrequests.Update
	registry prometheus.Registerer
	log      *slog.Logger
}

// run waits for credentials and publishes with them until ctx ends.
func (a *apiPublishers) run(ctx context.Context) error {
	for said := ""; ; {
		config, err := kubeapi.Config(a.options.Kubeconfig, "qos-kubelet-shim/"+a.options.Version)
		if err == nil {
			return a.publish(ctx, config)
		}
		if err.Error() != said {
			said = err.Error()
			a.log.Warn("nothing is published to the Kubernetes API; the kubelet gets classes and capacities all the same", "problem", err)
		}
		if errors.Is(err, kubeapi.ErrNoCredentials) && a.options.Kubeconfig == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(credentialsInterval):
		}
	}
}

func (a *apiPublishers) publish(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if a.options.publishes(NodeObject) {
		objects, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		object := nodeobject.New(a.feed, objects, client.CoreV1(), nodeobject.Options{
			NodeName: a.options.NodeName, Registry: a.registry, Log: a.log,
		})
		group.Go(func() error { return object.Run(ctx) })
	}
	if a.options.publishes(PodConditions) || a.options.publishes(Events) || a.options.FollowAnnotations {
		pods := podstatus.New(a.feed, client, podstatus.Options{
			NodeName: a.options.NodeName, Conditions: a.options.publishes(PodConditions), Events: a.options.publishes(Events),
			FollowAnnotations: a.options.FollowAnnotations, Update: a.update, Registry: a.registry, Log: a.log,
		})
		group.Go(func() error { return pods.Run(ctx) })
	}
	return group.Wait()
}
