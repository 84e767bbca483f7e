// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletshim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// resetInterval is how often AwaitReset lists the nodes.
const resetInterval = 2 * time.Second

// AwaitReset waits until no node offers a class of containers or pods, and no container or pod has a class that was assigned as the
// default class. It ignores nodes that have stopped reporting. It returns an error if it has no credentials, or if ctx ends.
func AwaitReset(ctx context.Context, kubeconfig, version string, log *slog.Logger) error {
	config, err := kubeapi.Config(kubeconfig, "qos-kubelet-shim/"+version)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	return awaitReset(ctx, objects, log)
}

func awaitReset(ctx context.Context, objects dynamic.Interface, log *slog.Logger) error {
	for logged := ""; ; {
		waitsFor, err := notReset(ctx, objects)
		if err == nil && len(waitsFor) == 0 {
			return nil
		}

		problem := "nodes offer classes: " + strings.Join(waitsFor, ", ")
		if err != nil {
			problem = err.Error()
		}
		if problem != logged {
			logged = problem
			log.Info("waiting until no node offers a class", "problem", problem)
		}
		if pause.For(ctx, resetInterval); ctx.Err() != nil {
			return fmt.Errorf("%w; %s", ctx.Err(), problem)
		}
	}
}

// notReset returns the names of the nodes that offer classes.
func notReset(ctx context.Context, objects dynamic.Interface) ([]string, error) {
	list, err := objects.Resource(nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list NodeQOSResources: %w", err)
	}

	var names []string
	for _, item := range list.Items {
		var node nodeqosv1alpha1.NodeQOSResources
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &node); err != nil {
			return nil, fmt.Errorf("read NodeQOSResources %s: %w", item.GetName(), err)
		}
		if offersClasses(&node.Status, time.Now()) {
			names = append(names, node.Name)
		}
	}
	return names, nil
}

// offersClasses reports whether a node offers classes, or still has containers or pods that got their class as the default class.
// It ignores classes of volumes, because class files do not configure them.
func offersClasses(status *nodeqosv1alpha1.NodeQOSResourcesStatus, now time.Time) bool {
	resources := slices.Concat(status.QOSResources.ContainerQOSResources, status.QOSResources.PodQOSResources)
	return !status.Expired(now) && slices.ContainsFunc(resources, func(r nodeqosv1alpha1.QOSResourceInfo) bool {
		return slices.ContainsFunc(r.Classes, func(c nodeqosv1alpha1.QOSResourceClassInfo) bool {
			return !c.Draining || slices.ContainsFunc(c.Holders, func(h nodeqosv1alpha1.Holder) bool { return h.Source == string(classes.SourceDefault) })
		})
	})
}
