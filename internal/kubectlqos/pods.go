// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type podsCommand struct {
	*cluster
	// volumes is true for the command "kubectl qos volumes". This command shows only pods' volumes, and the devices on
	// which the volumes' limits are in force.
	volumes bool
	output
	names      []string
	selector   string
	everywhere bool
	watch      bool
	// problems is true for "kubectl qos volumes --check".
	problems bool
	// unreadable is true if the user has no permission to read NodeQOSResources, or if the cluster has no such kind.
	unreadable bool

	table *tablePrinter
	shown shown
}

func newPodsCommand(c *cluster) *cobra.Command {
	o := &podsCommand{cluster: c, shown: shown{}}
	cmd := &cobra.Command{
		Use:     "pods [POD…]",
		Aliases: []string{"pod", "po"},
		Short:   "Show which classes pods request and have, and why they differ",
		Long: `pods shows a line for each container, or pod, and QoS-class resource of its node: the requested class, the class
in effect, its source, and why the two differ. The requested class is computed from annotations and limits by the rules of
the node; for a pod without a node, only the requested class is shown. The class in effect is reported by the node.

Sources: container, allocated (an extended resource in the limits, or a claim), pod, default (the resource's default class), rule NAME (a rule of
the class file), update (changed while running), adopted (the plugin found it running in the class), and "-" for no request and no
default.

Documents (-o json, yaml, …) have "items" with namespace, pod, container (empty for the whole pod), volume (the path of a volume),
resource, requested, requestedBy, source, effective, foreign, reason, message, node, and device and since of a volume. A
class "" is the system default; null is none or unknown. foreign is what another program, e.g. the container runtime, has set
in place of the system default.`,
		Example: `  kubectl qos pods -A
  kubectl qos pods web -o wide
  kubectl qos pods -l app=web -o json | jq '.items[] | select(.reason != "")'`,
		ValidArgsFunction: c.completePod,
		RunE:              o.runE,
	}
	o.addPodFlags(cmd)
	return cmd
}

func newVolumesCommand(c *cluster) *cobra.Command {
	o := &podsCommand{cluster: c, shown: shown{}, volumes: true}
	cmd := &cobra.Command{
		Use:     "volumes [POD…]",
		Aliases: []string{"volume", "vol"},
		Short:   "Show the classes of volumes, and the devices that the classes limit",
		Long: `volumes shows a line for each volume for which a pod requests a class: the requested class, the class whose limits are
in force, the numbers of the devices that have them, since when, and why the two classes differ. A request that the node refuses as a
whole has one line without a volume. A second table shows what StatefulSetVolumes objects request for the volumes of StatefulSets, how
many replicas have it, and why the others do not.

With --check, it shows instead the PersistentVolumes that can never expand on their node, because they were created before their
StorageClass named the secret that the driver needs (KEP-3107). The exit code is then 1 if there are such volumes.

Documents (-o json, yaml, …) have the "items" of "kubectl qos pods" with volume, device and since.`,
		Example: `  kubectl qos volumes -A
  kubectl qos volumes db -w
  kubectl qos volumes --check`,
		ValidArgsFunction: c.completePod,
		RunE:              o.runE,
	}
	o.addPodFlags(cmd)
	cmd.Flags().BoolVar(&o.problems, "check", false, "Show the PersistentVolumes of the cluster that can never expand on their node.")
	return cmd
}

func (o *podsCommand) runE(cmd *cobra.Command, args []string) error {
	if err := o.check(args); err != nil {
		return program.UsageError(cmd, err)
	}
	if err := o.read(cmd); err != nil {
		return err
	}
	if o.problems {
		return o.checkVolumes(cmd.Context())
	}
	return o.run(cmd.Context())
}

func (o *podsCommand) addPodFlags(cmd *cobra.Command) {
	o.addFlags(cmd, false)
	cmd.Flags().BoolVarP(&o.everywhere, "all-namespaces", "A", false, "Show pods of all namespaces.")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "Label selector of the pods, e.g. -l key1=value1,key2=value2.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After the table, show every change until interrupted.")
}

// check stores the names of pods from the arguments. It returns an error if the command line is invalid.
func (o *podsCommand) check(args []string) error {
	for _, arg := range args {
		name, err := podName(arg)
		if err != nil {
			return err
		}
		o.names = append(o.names, name)
	}
	if len(o.names) > 0 && (o.everywhere || o.selector != "") {
		return errors.New("POD cannot be combined with -A or -l")
	}
	if o.problems && (len(o.names) > 0 || o.selector != "" || o.watch) {
		return errors.New("--check checks all PersistentVolumes; it cannot be combined with POD, -l or -w")
	}

	if _, err := labels.Parse(o.selector); err != nil {
		return fmt.Errorf("--selector %q: %w", o.selector, err)
	}
	return nil
}

func (o *podsCommand) run(ctx context.Context) error {
	columns := []string{"POD", "CONTAINER", "RESOURCE", "REQUESTED", "EFFECTIVE", "SOURCE", "+REQUESTED BY", "+NODE", "WHY"}
	if o.volumes {
		columns = []string{"POD", "CONTAINER", "VOLUME", "REQUESTED", "IN FORCE", "DEVICE", "SINCE", "+RESOURCE", "+NODE", "WHY"}
	}
	if o.everywhere {
		columns = slices.Insert(columns, 0, "NAMESPACE")
	}
	o.table = newTablePrinter(o.wide(), columns...)

	api, err := o.connect()
	if err != nil {
		return err
	}
	namespace := api.namespace
	if o.everywhere {
		namespace = metav1.NamespaceAll
	}
	pods, err := o.readPods(ctx, api, namespace)
	if err != nil {
		return err
	}
	nodes, err := o.readNodes(ctx, api, pods)
	if err != nil {
		return err
	}
	rows := o.changed(podRows(pods, nodes, !o.unreadable, o.now()))
	if o.volumes && o.documents == nil && !o.watch && len(o.names) == 0 && o.selector == "" {
		return o.showVolumes(ctx, api, rows, namespace)
	}
	if err := o.showFirst(rows, namespace); err != nil || !o.watch {
		return err
	}

	w := newPodWatch(api, namespace, o.names, o.selector, o.streams.ErrOut)
	return w.follow(ctx, func() error {
		nodes, err := allTyped(w.nodes())
		if err != nil {
			return err
		}
		return o.show(o.changed(podRows(w.pods(), nodes, true, o.now())))
	})
}

// readNodes reads the NodeQOSResources of the pods' nodes. If the user has no permission to read them, or the cluster has no such kind,
// the command shows what is in the pods: their requests and conditions.
func (o *podsCommand) readNodes(ctx context.Context, api *clients, pods []corev1.Pod) ([]nodeqosv1alpha1.NodeQOSResources, error) {
	nodes, err := api.nodesOf(ctx, pods)
	if (errors.Is(err, errForbidden) || errors.Is(err, errNoKind)) && !o.watch {
		fmt.Fprintln(o.streams.ErrOut, "Note: only what is in the Pod objects can be shown:", err)
		o.unreadable = true
		return nil, nil
	}
	return nodes, err
}

func (o *podsCommand) readPods(ctx context.Context, api *clients, namespace string) ([]corev1.Pod, error) {
	if len(o.names) == 0 {
		return api.listPods(ctx, namespace, o.selector)
	}
	var pods []corev1.Pod
	for _, name := range slices.Compact(slices.Sorted(slices.Values(o.names))) {
		pod, err := api.getPod(ctx, name)
		if err != nil {
			return nil, err
		}
		pods = append(pods, *pod)
	}
	return pods, nil
}

// showVolumes shows the volumes of pods, and then those of StatefulSets.
func (o *podsCommand) showVolumes(ctx context.Context, api *clients, rows []podRow, namespace string) error {
	if err := o.show(rows); err != nil {
		return err
	}
	sets, err := o.showSets(ctx, api, namespace, len(rows) > 0)
	if err == nil && !sets && len(rows) == 0 {
		return o.showFirst(nil, namespace)
	}
	return err
}

func (o *podsCommand) showFirst(rows []podRow, namespace string) error {
	switch {
	case o.documents != nil:
		return printList(&o.output, o.streams.Out, rows)
	case len(rows) > 0 || o.watch:
		return o.show(rows)
	case o.volumes:
		fmt.Fprintln(o.streams.ErrOut, "No pods that request classes for volumes found.")
	case len(o.names) > 0:
		fmt.Fprintf(o.streams.ErrOut, "Pod %s requests no QoS class, and its node reports no QoS-class resources.\n", strings.Join(o.names, ", "))
	case namespace == metav1.NamespaceAll:
		fmt.Fprintln(o.streams.ErrOut, "No pods with QoS-class resources found.")
	default:
		fmt.Fprintf(o.streams.ErrOut, "No pods with QoS-class resources found in %s namespace.\n", namespace)
	}
	return nil
}

func (o *podsCommand) changed(rows []podRow) []podRow {
	if o.volumes {
		rows = slices.DeleteFunc(rows, func(row podRow) bool {
			return row.Volume == "" && !strings.HasPrefix(row.RequestedBy, classes.VolumeKeyPrefix) // neither a volume nor a refused request for a volume
		})
	}
	return changed(&o.shown, rows, func(row *podRow) (key, text string) {
		return fmt.Sprint(row.Namespace, "/", row.Pod, " ", row.Container, " ", row.Volume, " ", row.Resource), fmt.Sprint(o.cells(row))
	})
}

func (o *podsCommand) show(rows []podRow) error {
	switch {
	case len(rows) == 0:
		return nil
	case o.documents != nil:
		return printList(&o.output, o.streams.Out, rows)
	}

	var lines [][]string
	for i := range rows {
		lines = append(lines, o.cells(&rows[i]))
	}
	text, err := o.table.format(lines)
	fmt.Fprint(o.streams.Out, text)
	return err
}

func (o *podsCommand) cells(row *podRow) []string {
	effective, why := classText(row.Effective), row.Reason
	switch {
	case row.unknown:
		effective = "unknown"
	case row.Foreign != "":
		effective = foreignText(row.Foreign)
	}
	if row.Message != "" {
		why += ": " + row.Message
	}

	cells := []string{
		row.Pod, containerText(row.Container, row.Volume), orNothing(row.Resource), classText(row.Requested), effective, orNothing(row.Source),
		orNothing(row.RequestedBy), orNothing(row.Node), why,
	}
	if o.volumes {
		cells = []string{
			row.Pod, row.Container, orNothing(row.Volume), classText(row.Requested), effective, orNothing(row.Device), sinceText(row.Since),
			orNothing(row.Resource), orNothing(row.Node), why,
		}
	}
	if o.everywhere {
		cells = slices.Insert(cells, 0, row.Namespace)
	}
	return cells
}

func sinceText(since *metav1.Time) string {
	if since == nil {
		return nothing
	}
	return timeText(since)
}

func classText(class *string) string {
	if class == nil {
		return nothing
	}
	return className(*class)
}
