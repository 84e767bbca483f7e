// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

type classKey struct {
	Resource string                `json:"resource"`
	Scope    nodeqosv1alpha1.Scope `json:"scope"`
	Class    string                `json:"class"`
}

// classUse is the use of a class in the cluster. Its JSON form is an item of the documents that -o json prints.
type classUse struct {
	classKey `json:",inline"`
	// Nodes is the number of nodes that offer the class.
	Nodes int64 `json:"nodes"`
	InUse int64 `json:"inUse"`
	// Capacity is null if the class is unlimited on at least one node. Free counts only nodes whose state is current,
	// and is null if the class is unlimited on one of these nodes.
	Capacity *int64 `json:"capacity"`
	Free     *int64 `json:"free"`
	// Held has the number of nodes for each reason of the class's condition Held. It is empty if no node reports the condition.
	Held map[string]int64 `json:"held,omitempty"`
	// namespaces has the use by namespace. It is empty without --by-namespace.
	namespaces map[string]*namespaceUse
}

// namespaceUse is the use of a class in a namespace. Its JSON form is an item of the documents that -o json prints.
type namespaceUse struct {
	classKey `json:",inline"`
	// Namespace is empty for the holders that a node omits from its list. The node reports only their number, in
	// HoldersOmitted.
	Namespace string `json:"namespace"`
	InUse     int64  `json:"inUse"`
	Pods      int64  `json:"pods"`
}

type topCommand struct {
	*cluster
	output
	byNamespace, watch bool
	shown              shown
}

func newTopCommand(c *cluster) *cobra.Command {
	o := &topCommand{cluster: c, shown: shown{}}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the use of each class in the cluster",
		Long: `top adds up the use and the capacity of each class over all nodes. Capacity and free slots are "inf" if the class is
unlimited on one of its nodes. A draining class has no free slots, and neither has a node that is not ready.

With --by-namespace it shows how many assignments of each class the namespaces have.

HELD says whether the limits of a class were kept, on nodes whose plugin runs with --held-interval: LimitNotHeld, Reached (and
kept), NeverReached or NotMeasured. "kubectl qos nodes NODE" has the figures.

To see what the containers of the classes use of caches, memory bandwidth and disks, run "kubectl qos top usage".

Documents (-o json, yaml, …) have "items" with resource, scope, class, nodes, inUse, capacity and free (null is unlimited), and
held with the number of nodes for each reason. With --by-namespace, the items have resource, scope, class, namespace, inUse and pods. An item with an empty
namespace has the assignments that nodes count but do not list.`,
		Example: `  kubectl qos top
  kubectl qos top --by-namespace
  kubectl qos top usage node-1`,
		Args:              program.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.read(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.AddCommand(newUsageCommand(c))
	o.addFlags(cmd, false)
	cmd.Flags().BoolVar(&o.byNamespace, "by-namespace", false, "Show the use by namespace.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "Show the table again at every change, until interrupted.")
	return cmd
}

func (o *topCommand) run(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	use := o.newUse()
	if err := api.eachNode(ctx, use.add); err != nil {
		return err
	}
	use.noteStale(o.streams.ErrOut)
	if err := o.show(use); err != nil || !o.watch {
		return err
	}

	w := newNodeWatch(api, "", o.streams.ErrOut)
	return w.follow(ctx, func() error {
		nodes, err := allTyped(w.nodes())
		if err != nil {
			return err
		}
		use := o.newUse()
		for i := range nodes {
			use.add(&nodes[i])
		}
		return o.show(use)
	})
}

func (o *topCommand) newUse() *use {
	return &use{now: o.now(), byNamespace: o.byNamespace, index: map[classKey]int{}}
}

// show prints the whole table or document if it differs from the previous one.
func (o *topCommand) show(use *use) error {
	if o.byNamespace {
		return printUse(o, use.ofNamespaces(), namespaceUse.cells, "RESOURCE", "CLASS", "NAMESPACE", "IN-USE", "PODS", "+SCOPE")
	}
	return printUse(o, use.ofClasses(), classUse.cells, "RESOURCE", "CLASS", "NODES", "IN-USE", "CAPACITY", "FREE", "HELD", "+SCOPE")
}

func printUse[T any](o *topCommand, all []T, cells func(T) []string, columns ...string) error {
	var page strings.Builder
	if o.documents != nil {
		if err := printList(&o.output, &page, all); err != nil {
			return err
		}
		if o.shown[""] != page.String() {
			o.shown[""] = page.String()
			fmt.Fprint(o.streams.Out, page.String())
		}
		return nil
	}

	var rows [][]string
	for _, use := range all {
		rows = append(rows, cells(use))
	}
	text, err := newTablePrinter(o.wide(), columns...).format(rows)
	o.shown.printAgain(o.streams.Out, "", text)
	return err
}

// use adds up the use of classes over nodes. It keeps no node.
type use struct {
	now         time.Time
	byNamespace bool
	classes     []classUse
	index       map[classKey]int // in `classes`
	// notReady and expired have the names of the nodes whose numbers are outdated.
	notReady, expired []string
}

// add adds a node. A node whose state is not current adds nothing to Free.
func (u *use) add(node *nodeqosv1alpha1.NodeQOSResources) {
	isCurrent := current(node, u.now)
	switch {
	case node.Status.Expired(u.now):
		u.expired = append(u.expired, node.Name)
	case !isCurrent:
		u.notReady = append(u.notReady, node.Name)
	}

	for scope, r := range node.Status.QOSResources.All() {
		for i := range r.Classes {
			class := u.class(classKey{r.Name, scope, r.Classes[i].Name})
			class.add(&r.Classes[i], isCurrent)
			if u.byNamespace {
				class.addHolders(&r.Classes[i])
			}
		}
	}
}

func (u *use) class(key classKey) *classUse {
	at, known := u.index[key]
	if !known {
		at = len(u.classes)
		u.index[key] = at
		u.classes = append(u.classes, classUse{classKey: key, Capacity: new(int64), Free: new(int64), namespaces: map[string]*namespaceUse{}})
	}
	return &u.classes[at]
}

// noteStale warns about nodes whose numbers are outdated.
func (u *use) noteStale(out io.Writer) {
	note := func(nodes []string, why string) {
		if len(nodes) > 0 {
			fmt.Fprintf(out, "Note: the numbers of %s are outdated, because %s\n", others("", nodes), why)
		}
	}
	note(u.notReady, "qos-nri-plugin is not ready")
	note(u.expired, "qos-kubelet-shim does not report any more")
}

// ofClasses returns the classes, sorted by resource, and then by their first occurrence on the nodes.
func (u *use) ofClasses() []classUse {
	return slices.SortedStableFunc(slices.Values(u.classes), func(a, b classUse) int { return cmp.Compare(a.Resource, b.Resource) })
}

func (u *classUse) add(class *nodeqosv1alpha1.QOSResourceClassInfo, current bool) {
	u.InUse = sum(u.InUse, class.InUse)
	if held := meta.FindStatusCondition(class.Conditions, qos.ConditionHeld); held != nil {
		if u.Held == nil {
			u.Held = map[string]int64{}
		}
		u.Held[held.Reason]++
	}
	if class.Draining {
		return
	}

	u.Nodes++
	free := max(class.Capacity-class.InUse, 0) // a node that uses more than its capacity does not reduce the free slots of other nodes
	u.Capacity = sumOf(u.Capacity, class.Capacity, class.Capacity == 0)
	if current {
		u.Free = sumOf(u.Free, free, class.Capacity == 0)
	}
}

// addHolders adds the holders of the class on one node to their namespaces. A pod can hold the class more than once.
func (u *classUse) addHolders(class *nodeqosv1alpha1.QOSResourceClassInfo) {
	pods := map[[2]string]bool{}
	for _, h := range class.Holders {
		of := u.namespace(h.Namespace)
		of.InUse++
		if pod := [2]string{h.Namespace, h.Pod}; !pods[pod] {
			pods[pod] = true
			of.Pods++
		}
	}
	if class.HoldersOmitted > 0 {
		of := u.namespace("")
		of.InUse = sum(of.InUse, class.HoldersOmitted)
	}
}

func (u *classUse) namespace(name string) *namespaceUse {
	if u.namespaces[name] == nil {
		u.namespaces[name] = &namespaceUse{classKey: u.classKey, Namespace: name}
	}
	return u.namespaces[name]
}

// sumOf returns the sum of `n` and `more`. A nil pointer means unlimited. The sum is nil if `n` is nil or `unlimited`
// is true.
func sumOf(n *int64, more int64, unlimited bool) *int64 {
	if n == nil || unlimited {
		return nil
	}
	return new(sum(*n, more))
}

func sum(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (u classUse) cells() []string {
	return []string{u.Resource, u.Class, number(&u.Nodes), number(&u.InUse), number(u.Capacity), number(u.Free), u.heldText(), string(u.Scope)}
}

// heldText returns the reason of the condition Held. If the nodes differ, it returns the worst reason, with the number
// of nodes that have it.
func (u classUse) heldText() string {
	nodes := int64(0)
	for _, n := range u.Held {
		nodes += n
	}
	for _, reason := range []string{qos.ReasonLimitNotHeld, qos.ReasonReached, qos.ReasonNeverReached, qos.ReasonNotMeasured} {
		switch n := u.Held[reason]; {
		case n > 0 && n < nodes:
			return fmt.Sprintf("%s (%d of %d nodes)", reason, n, nodes)
		case n > 0:
			return reason
		}
	}
	return nothing
}

func number(n *int64) string {
	if n == nil {
		return unlimited
	}
	return strconv.FormatInt(*n, 10)
}

// ofNamespaces returns the holders of each class by namespace. For each class, the namespaces with the most holders
// come first. The holders that the nodes count but do not list come last.
func (u *use) ofNamespaces() (all []namespaceUse) {
	for _, class := range u.ofClasses() {
		for _, of := range slices.SortedFunc(maps.Values(class.namespaces), byUse) {
			all = append(all, *of)
		}
	}
	return all
}

func byUse(a, b *namespaceUse) int {
	if (a.Namespace == "") != (b.Namespace == "") {
		return cmp.Compare(b.Namespace, a.Namespace)
	}
	return cmp.Or(cmp.Compare(b.InUse, a.InUse), cmp.Compare(a.Namespace, b.Namespace))
}

func (u namespaceUse) cells() []string {
	if u.Namespace == "" {
		return []string{u.Resource, u.Class, "<not named>", number(&u.InUse), "unknown", string(u.Scope)}
	}
	return []string{u.Resource, u.Class, u.Namespace, number(&u.InUse), number(&u.Pods), string(u.Scope)}
}
