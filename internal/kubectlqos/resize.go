// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// fieldManager is the field manager of all writes.
const fieldManager = "kubectl-qos"

var sizePattern = regexp.MustCompile(nodeqosv1alpha1.SizePattern)

func volumesKind() schema.GroupVersionResource {
	return nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.StatefulSetVolumesPlural)
}

type resizeCommand struct {
	*cluster
	name, template, storage, class string
	recreate, wait                 bool
	dryRun                         string
	timeout                        time.Duration
}

func newResizeCommand(c *cluster) *cobra.Command {
	o := &resizeCommand{cluster: c}
	cmd := &cobra.Command{
		Use:   "resize STATEFULSET [--storage SIZE] [--volume-attributes-class CLASS]",
		Short: "Resize the volumes of a StatefulSet",
		Long: `resize requests a size and a VolumeAttributesClass for the volumes of a claim template, in the StatefulSetVolumes object with
the name of the StatefulSet. Then it waits until "qos-storage resize" has changed the volumes of all replicas, and prints each
replica that is ready. If a change is refused or fails, the exit code is 1; the request stays.

With --recreate, resize then replaces the StatefulSet by one whose template has the size and the class. Pods and claims stay, and
the new StatefulSet adopts them. resize first checks both steps by a dry run on the API server, and prints what happens.`,
		Example: `  kubectl qos resize db --template data --storage 20Gi
  kubectl qos resize db --template data --storage 20Gi --recreate --dry-run=server
  kubectl qos resize db --volume-attributes-class gold --wait=false`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return program.UsageError(cmd, errors.New("one STATEFULSET is required"))
			}
			return nil
		},
		ValidArgsFunction: c.completeStatefulSet,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(args[0]); err != nil {
				return program.UsageError(cmd, err)
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *resizeCommand) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.template, "template", "", "Name of the claim template; optional for StatefulSets with one template.")
	flags.StringVar(&o.storage, "storage", "", "Size of the volumes, e.g. 20Gi.")
	flags.StringVar(&o.class, "volume-attributes-class", "", "Name of the VolumeAttributesClass of the volumes.")
	flags.BoolVar(&o.recreate, "recreate", false, "Then replace the StatefulSet by one whose template has the same values. Pods and claims stay.")
	flags.StringVar(&o.dryRun, "dry-run", dryRunNone, "One of: none, client (print the change) or server (the API server checks the change, too).")
	flags.Lookup("dry-run").NoOptDefVal = dryRunClient
	flags.BoolVar(&o.wait, "wait", true, "Wait until the volumes are changed.")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "How long to wait.")
	completeFlag(cmd, "template", o.completeTemplate)
	completeFlag(cmd, "volume-attributes-class", o.completeVolumeAttributesClass)
	completeFlag(cmd, "dry-run", cobra.FixedCompletions([]string{dryRunNone, dryRunClient, dryRunServer}, noFiles))
}

func (o *resizeCommand) read(word string) (err error) {
	if o.name, err = statefulSetName(word); err != nil {
		return err
	}
	switch {
	case o.storage == "" && o.class == "":
		return errors.New("--storage or --volume-attributes-class is required")
	case o.storage != "" && !sizePattern.MatchString(o.storage):
		return fmt.Errorf("--storage %q is no size; write, e.g., 20Gi", o.storage)
	case !slices.Contains([]string{dryRunNone, dryRunClient, dryRunServer}, o.dryRun):
		return fmt.Errorf("--dry-run %q is not one of none, client, server", o.dryRun)
	case o.timeout <= 0:
		return fmt.Errorf("--timeout %s must be positive; to return without waiting, use --wait=false", o.timeout)
	case o.recreate && !o.wait:
		return errors.New("--recreate and --wait=false cannot be used together, because the volumes have to be changed first")
	}
	return nil
}

func statefulSetName(word string) (string, error) { return nameOf(word, statefulSets().names()...) }

func (o *resizeCommand) run(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	set, err := api.getStatefulSet(ctx, o.name)
	if err != nil {
		return err
	}
	if err := o.choose(set); err != nil {
		return err
	}
	var next *appsv1.StatefulSet
	if o.recreate {
		if next, err = o.planRecreation(ctx, api, set); err != nil {
			return err
		}
	}

	generation, err := o.write(ctx, api)
	switch {
	case err != nil:
		return err
	case o.dryRun != dryRunNone:
		o.printPlan(set, next)
		return nil
	case !o.wait:
		o.print("%s requested\n", o.subject())
		return nil
	}
	o.printPlan(set, next)
	if err := o.await(ctx, api, set, generation); err != nil || next == nil {
		return err
	}
	return o.replace(ctx, api, next)
}

// choose checks the name of the template. It selects the only template of a StatefulSet.
func (o *resizeCommand) choose(set *appsv1.StatefulSet) error {
	names := templatesOf(set)
	switch {
	case len(names) == 0:
		return fmt.Errorf("statefulset %s has no claim templates; there is nothing to resize", set.Name)
	case o.template == "" && len(names) > 1:
		return fmt.Errorf("statefulset %s has several claim templates; name one with --template%s", set.Name, others(": ", names))
	case o.template == "":
		o.template = names[0]
	case !slices.Contains(names, o.template):
		return fmt.Errorf("statefulset %s has no claim template %q%s", set.Name, o.template, others("; its templates: ", names))
	}
	return nil
}

func (o *resizeCommand) subject() string {
	return fmt.Sprintf("statefulset/%s template %s: %s", o.name, o.template, o.wanted())
}

func (o *resizeCommand) wanted() string {
	switch {
	case o.class == "":
		return "storage " + o.storage
	case o.storage == "":
		return "volume attributes class " + o.class
	}
	return "storage " + o.storage + ", volume attributes class " + o.class
}

func (o *resizeCommand) printPlan(set, next *appsv1.StatefulSet) {
	suffix := dryRunSuffix(o.dryRun)
	o.print("%s for %d replicas%s\n", o.subject(), replicasOf(set), suffix)
	if next == nil {
		return
	}
	before, after := templateOf(set, o.template), templateOf(next, o.template)
	o.print("then statefulset/%s is deleted without its pods and claims, and created with the template %s: "+
		"storage %s -> %s, volume attributes class %s -> %s%s\n",
		o.name, o.template, before.Spec.Resources.Requests.Storage(), after.Spec.Resources.Requests.Storage(),
		orNothing(valueOf(before.Spec.VolumeAttributesClassName)), orNothing(valueOf(after.Spec.VolumeAttributesClassName)), suffix)
}

func valueOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func replicasOf(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// templatesOf returns the names of the claim templates of a StatefulSet.
func templatesOf(set *appsv1.StatefulSet) (names []string) {
	for i := range set.Spec.VolumeClaimTemplates {
		names = append(names, set.Spec.VolumeClaimTemplates[i].Name)
	}
	return names
}

// templateOf returns a claim template of a StatefulSet that has it.
func templateOf(set *appsv1.StatefulSet, name string) *corev1.PersistentVolumeClaim {
	at := slices.IndexFunc(set.Spec.VolumeClaimTemplates, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name })
	return &set.Spec.VolumeClaimTemplates[at]
}

// write creates or changes the StatefulSetVolumes object, and returns its generation. Requests for other templates stay.
func (o *resizeCommand) write(ctx context.Context, api *clients) (generation int64, err error) {
	if o.dryRun == dryRunClient {
		return 0, nil
	}
	objects := api.objects.Resource(volumesKind()).Namespace(api.namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := objects.Get(ctx, o.name, metav1.GetOptions{})
		switch kubeapi.OutcomeOf(err) { //nolint:exhaustive // the other outcomes are errors
		case kubeapi.OK:
		case kubeapi.NotFound:
			object = nil
		default:
			return err
		}
		if object, err = o.writeOver(ctx, objects, object); err == nil {
			generation = object.GetGeneration()
		}
		return err
	})
	if kubeapi.OutcomeOf(err) == kubeapi.Conflict {
		return 0, fmt.Errorf("statefulsetvolumes %s was changed by another client at every attempt; try again", o.name)
	}
	return generation, explainVolumes(err)
}

// writeOver writes the request into `object`. If `object` is nil, it creates the object.
func (o *resizeCommand) writeOver(
	ctx context.Context, objects dynamic.ResourceInterface, object *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	var dryRun []string
	if o.dryRun == dryRunServer {
		dryRun = []string{metav1.DryRunAll}
	}
	if object == nil {
		object = &unstructured.Unstructured{Object: map[string]any{}}
		object.SetGroupVersionKind(nodeqosv1alpha1.GroupVersion.WithKind(nodeqosv1alpha1.StatefulSetVolumesKind))
		object.SetName(o.name)
		if err := unstructured.SetNestedSlice(object.Object, o.templates(nil), "spec", "volumeClaimTemplates"); err != nil {
			return nil, err
		}
		return objects.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager, DryRun: dryRun})
	}

	present, _, err := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion()},
		"spec":     map[string]any{"volumeClaimTemplates": o.templates(present)},
	})
	if err != nil {
		return nil, err
	}
	return objects.Patch(ctx, o.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager, DryRun: dryRun})
}

// templates returns the requests for all templates. It keeps the present values that the command line does not set.
func (o *resizeCommand) templates(present []any) []any {
	at := slices.IndexFunc(present, func(item any) bool {
		template, ok := item.(map[string]any)
		return ok && template["name"] == o.template
	})
	if at < 0 {
		present, at = append(present, map[string]any{"name": o.template}), len(present)
	}
	template, _ := present[at].(map[string]any)
	if o.storage != "" {
		template["storage"] = o.storage
	}
	if o.class != "" {
		template["volumeAttributesClassName"] = o.class
	}
	return present
}

func (c *clients) getStatefulSet(ctx context.Context, name string) (*appsv1.StatefulSet, error) {
	set, err := c.core.AppsV1().StatefulSets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	return set, c.explainGet(err, "statefulset", name)
}

// explainVolumes is like explain, for requests about StatefulSetVolumes.
func explainVolumes(err error) error {
	if kubeapi.OutcomeOf(err) == kubeapi.NoSuchKind {
		return errors.New("this cluster has no kind StatefulSetVolumes; install it with kubectl apply -k deploy/storage-statefulsets, " +
			"or with statefulSetVolumes.enabled=true of the Helm chart")
	}
	return explain(err)
}
