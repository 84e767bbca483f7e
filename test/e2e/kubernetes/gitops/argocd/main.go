// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command argocd compares or synchronizes an object with the code of Argo CD, as its application controller does for an Application. It
// reads the manifest of the object from stdin, and prints the status of the Application.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	argodiff "github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/argoproj/gitops-engine/pkg/sync"
	synccommon "github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "argocd:", err)
		os.Exit(1)
	}
}

// application has what an Application and its sync operation set.
type application struct {
	namespace, ignore                                       string
	serverSideApply, serverSideDiff, includeMutationWebhook bool

	config  *rest.Config
	cluster cache.ClusterCache
	targets []*unstructured.Unstructured
}

func run(ctx context.Context, args []string) error {
	a := application{}
	flags := flag.NewFlagSet("argocd diff|sync <MANIFEST", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "the kubeconfig file")
	flags.StringVar(&a.namespace, "n", "", "spec.destination.namespace")
	flags.BoolVar(&a.serverSideApply, "server-side-apply", false, "the sync option ServerSideApply=true")
	flags.BoolVar(&a.serverSideDiff, "server-side-diff", false, "the compare option ServerSideDiff=true")
	flags.BoolVar(&a.includeMutationWebhook, "include-mutation-webhook", false, "the compare option IncludeMutationWebhook=true")
	flags.StringVar(&a.ignore, "ignore", "", "spec.ignoreDifferences of StatefulSets: JSON pointers, separated by commas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := a.connect(*kubeconfig); err != nil {
		return err
	}
	defer a.cluster.Invalidate()

	switch flags.Arg(0) {
	case "diff":
		return a.compare()
	case "sync":
		return a.sync(ctx)
	}
	return errors.New("usage: argocd FLAGS diff|sync <MANIFEST")
}

// connect reads the manifest, and the objects of the namespace.
func (a *application) connect(kubeconfig string) (err error) {
	if a.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return err
	}
	a.config.QPS, a.config.WarningHandler = -1, rest.NoWarnings{}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if a.targets, err = kube.SplitYAML(text); err != nil {
		return err
	}
	for _, target := range a.targets {
		target.SetNamespace(a.namespace)
		err := argo.NewResourceTracking().SetAppInstance(target, common.LabelKeyAppInstance, "db", a.namespace, v1alpha1.TrackingMethodAnnotation, "")
		if err != nil {
			return err
		}
	}
	a.cluster = cache.NewClusterCache(a.config, cache.SetNamespaces([]string{a.namespace}), cache.SetLogr(logr.Discard()),
		cache.SetPopulateResourceInfoHandler(func(*unstructured.Unstructured, bool) (any, bool) { return nil, true }))
	return a.cluster.EnsureSynced()
}

// sync synchronizes the objects, with the options of the controller's sync.go.
func (a *application) sync(ctx context.Context) error {
	results, err := engine.NewEngine(a.config, a.cluster, engine.WithLogr(logr.Discard())).Sync(ctx, a.targets, managed, "main", a.namespace,
		sync.WithManifestValidation(true), sync.WithServerSideApply(a.serverSideApply), sync.WithServerSideApplyManager(common.ArgoCDSSAManager),
		sync.WithClientSideApplyMigration(true, synccommon.DefaultClientSideApplyMigrationManager), sync.WithLogr(logr.Discard()))
	if err != nil {
		return err
	}
	for _, result := range results {
		fmt.Printf("%s/%s %s: %s\n", result.ResourceKey.Kind, result.ResourceKey.Name, result.Status, result.Message)
		if result.Status != synccommon.ResultCodeSynced {
			err = errors.New("the sync has failed")
		}
	}
	return err
}

// managed reports whether an object that is not a target belongs to the Application. None does, so the sync prunes
// nothing.
func managed(*cache.Resource) bool { return false }

// compare compares the objects, as CompareAppState of the controller's state.go does.
func (a *application) compare() error {
	lives, err := a.cluster.GetManagedLiveObjs(a.targets, managed)
	if err != nil {
		return err
	}
	state := sync.Reconcile(a.targets, lives, a.namespace, a.cluster)
	// By default, Argo CD ignores the status of all objects.
	overrides := map[string]v1alpha1.ResourceOverride{"*/*": {IgnoreDifferences: v1alpha1.OverrideIgnoreDiff{JSONPointers: []string{"/status"}}}}
	var ignores []v1alpha1.ResourceIgnoreDifferences
	if a.ignore != "" {
		ignores = []v1alpha1.ResourceIgnoreDifferences{{Group: "apps", Kind: "StatefulSet", JSONPointers: strings.Split(a.ignore, ",")}}
	}
	operations, cleanup, err := kube.ManageServerSideDiffDryRuns(a.config, a.cluster.GetOpenAPISchema(), tracing.NopTracer{}, logr.Discard(), nil)
	if err != nil {
		return err
	}
	defer cleanup()

	config, err := argodiff.NewDiffConfigBuilder().WithDiffSettings(ignores, overrides, false, normalizers.IgnoreNormalizerOpts{}).
		WithTracking(common.LabelKeyAppInstance, string(v1alpha1.TrackingMethodAnnotation)).WithNoCache().
		WithIgnoreMutationWebhook(!a.includeMutationWebhook).WithGVKParser(a.cluster.GetGVKParser()).WithManager(common.ArgoCDSSAManager).
		WithServerSideDiff(a.serverSideDiff).WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(operations)).
		WithStructuredMergeDiff(a.serverSideApply).Build()
	if err != nil {
		return err
	}
	results, err := argodiff.StateDiffs(state.Live, state.Target, config)
	if err != nil {
		return err
	}
	for i, result := range results.Diffs {
		if err := report(state.Target[i], state.Live[i], result); err != nil {
			return err
		}
	}
	return nil
}

// report prints the status of an object, and the difference if there is one.
func report(target, live *unstructured.Unstructured, result diff.DiffResult) error {
	status := v1alpha1.SyncStatusCodeSynced
	if result.Modified || live == nil {
		status = v1alpha1.SyncStatusCodeOutOfSync
	}
	fmt.Printf("%s/%s %s", target.GetKind(), target.GetName(), status)
	if live != nil {
		seen, err := health.GetResourceHealth(live, nil)
		if err != nil {
			return err
		}
		if seen != nil {
			fmt.Printf(" %s", seen.Status)
		}
	}
	fmt.Println()
	if result.Modified {
		fmt.Printf("live:   %s\ntarget: %s\n", result.NormalizedLive, result.PredictedLive)
	}
	return nil
}
