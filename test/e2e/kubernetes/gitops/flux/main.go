// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command flux compares, applies or awaits objects with the code of Flux, as its kustomize-controller does for a
// Kustomization. It reads the manifest of the objects from stdin, and prints its action for each object.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "flux:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("flux", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the kubeconfig file")
	namespace := flags.String("n", "", "spec.targetNamespace")
	if err := flags.Parse(args); err != nil {
		return err
	}
	objects, err := read(*namespace)
	if err != nil {
		return err
	}
	manager, err := connect(*kubeconfig)
	if err != nil {
		return err
	}

	switch flags.Arg(0) {
	case "diff":
		return compare(ctx, manager, objects)
	case "apply":
		changes, err := manager.ApplyAll(ctx, objects, ssa.DefaultApplyOptions())
		if err == nil {
			fmt.Println(changes)
		}
		return err
	case "wait":
		return manager.Wait(objects, ssa.WaitOptions{Interval: time.Second, Timeout: time.Minute, FailFast: true})
	}
	return errors.New("usage: flux FLAGS apply|diff|wait <MANIFEST")
}

// read reads the manifest.
func read(namespace string) ([]*unstructured.Unstructured, error) {
	objects, err := utils.ReadObjects(os.Stdin)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		object.SetNamespace(namespace)
	}
	return objects, normalize.UnstructuredList(objects)
}

// connect returns a manager of objects, with the owner of the kustomize-controller.
func connect(kubeconfig string) (*ssa.ResourceManager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	owner := ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}
	return ssa.NewResourceManager(c, polling.NewStatusPoller(c, c.RESTMapper(), polling.Options{}), owner), nil
}

// compare prints what an apply would do with each object, and the difference if there is one.
func compare(ctx context.Context, manager *ssa.ResourceManager, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		change, live, merged, err := manager.Diff(ctx, object, ssa.DefaultDiffOptions())
		if err != nil {
			return err
		}
		fmt.Println(change)
		if merged != nil {
			fmt.Printf("live:   %v\nmerged: %v\n", live.Object, merged.Object)
		}
	}
	return nil
}
