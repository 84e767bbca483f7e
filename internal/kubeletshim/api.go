// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
	"github.com/qos-nri/qos-nri-plugin/internal/podeviction"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
)

// credentialsInterval is how often credentials that cannot be read are looked at again.
const credentialsInterval = 30 * time.Second

// apiPublishers are the parts that need the Kubernetes API. Whatever becomes of them, the kubelet is told.
type apiPublishers struct {
	options  Options
	feed     *nodecache.Cache
	update   podrequests.Update
	registry prometheus.Registerer
	log      *slog.Logger
}

// run waits for credentials that can be used, and publishes with them until ctx ends.
func (a *apiPublishers) run(ctx context.Context) error {
	for said := ""; ; {
		config, err := kubeapi.Config(a.options.Kubeconfig, "qos-kubelet-shim/"+a.options.Version)
		if err == nil {
			var parts []part
			if parts, err = a.parts(config); err == nil {
				return runAll(ctx, parts)
			}
		}
		if err.Error() != said {
			said = err.Error()
			a.log.Warn("nothing is published to the Kubernetes API; the kubelet gets classes and capacities all the same", "problem", a.explain(err))
		}
		if errors.Is(err, kubeapi.ErrNoCredentials) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(credentialsInterval):
		}
	}
}

// explain says where credentials come from that cannot be used.
func (a *apiPublishers) explain(err error) string {
	if a.options.Kubeconfig == "" || strings.Contains(err.Error(), "--kubeconfig") {
		return err.Error()
	}
	return fmt.Sprintf("--kubeconfig %s cannot be used: %v", a.options.Kubeconfig, err)
}

// part publishes until ctx ends.
type part interface {
	Run(ctx context.Context) error
}

// parts makes what is to be published. The error is about the credentials.
func (a *apiPublishers) parts(config *rest.Config) ([]part, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var parts []part
	if a.options.publishes(NodeObject) {
		parts = append(parts, nodeobject.New(a.feed, objects, client.CoreV1(), nodeobject.Options{
			NodeName: a.options.NodeName, Registry: a.registry, Log: a.log,
		}))
	}
	if a.options.publishes(PodConditions) || a.options.publishes(Events) || a.options.FollowAnnotations {
		parts = append(parts, podstatus.New(a.feed, client, a.podOptions()))
	}
	if a.options.publishes(Evictions) {
		parts = append(parts, podeviction.New(a.feed, client, podeviction.Options{
			NodeName: a.options.NodeName, Events: a.options.publishes(Events), Registry: a.registry, Log: a.log,
		}))
	}
	return parts, nil
}

func (a *apiPublishers) podOptions() podstatus.Options {
	return podstatus.Options{
		NodeName: a.options.NodeName, Conditions: a.options.publishes(PodConditions), Events: a.options.publishes(Events),
		FollowAnnotations: a.options.FollowAnnotations, Update: a.update, Registry: a.registry, Log: a.log,
	}
}

func runAll(ctx context.Context, parts []part) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range parts {
		group.Go(func() error { return p.Run(ctx) })
	}
	return group.Wait()
}
