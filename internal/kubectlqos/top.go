// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// classUse is how much of a class the cluster has. It is also the form of documents (-o json, yaml).
type classUse struct {
	Resource string                `json:"resource"`
	Scope    nodeqosv1alpha1.Scope `json:"scope"`
	Class    string                `json:"class"`
	// Nodes is on how many nodes the class can be had.
	Nodes int64 `json:"nodes"`
	InUse int64 `json:"inUse"`
	// Capacity and Free are null when it is unlimited on a node.
	Capacity *int64 `json:"capacity"`
	Free     *int64 `json:"free"`
}

// namespaceUse is how much of a class a namespace has. It is also the form of documents.
type namespaceUse struct {
	Resource string                `json:"resource"`
	Scope    nodeqosv1alpha1.Scope `json:"scope"`
	Class    string                `json:"class"`
	// Namespace is empty for those that nodes count, and do not name.
	Namespace string `json:"namespace"`
	InUse     int64  `json:"inUse"`
	Pods      int64  `json:"pods"`
}

// topCommand is one run of "kubectl qos top".
type topCommand struct {
	*cluster
	documents          documents
	byNamespace, watch bool
	shown              string // what was shown last
}

func newTopCommand(c *cluster) *cobra.Command {
	o := &topCommand{cluster: c}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show how much of each class is in use in the cluster",
		Long: `top adds up over all nodes how much of each class is in use, and how much there is. Capacity and free slots are "inf"
where the class is unlimited on a node that has it. A class that drains counts what is in use only.

With --by-namespace it shows instead which namespaces have how many of each class.

Documents (-o json, yaml) have "items" with resource, scope, class, nodes, inUse, capacity and free (null is unlimited); by
namespace resource, scope, class, namespace (empty: not named), inUse and pods.`,
		Example: `  kubectl qos top
  kubectl qos top --by-namespace`,
		Args:              program.NoArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.documents.check(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.documents.addFlag(cmd)
	cmd.Flags().BoolVar(&o.byNamespace, "by-namespace", false, "Show which namespaces have the classes.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After that, show it again whenever it changes, until interrupted.")
	return cmd
}

func (o *topCommand) run(ctx context.Context) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	nodes, err := api.nodeObjects(ctx)
	if err != nil {
		return err
	}
	o.noteStale(nodes)
	if err := o.show(nodes); err != nil || !o.watch {
		return err
	}
	w := newNodeWatch(api, "", o.streams.ErrOut)
	return w.follow(ctx, func() error {
		var nodes []nodeqosv1alpha1.NodeQOSResources
		for _, object := range w.nodes() {
			node, err := typed(object)
			if err != nil {
				return err
			}
			nodes = append(nodes, *node)
		}
		return o.show(nodes)
	})
}

// show writes what was not shown last, as a whole; tables are an empty line apart.
func (o *topCommand) show(nodes []nodeqosv1alpha1.NodeQOSResources) error {
	text, err := o.text(nodes)
	if err != nil || text == o.shown {
		return err
	}
	if o.shown != "" && o.documents.isTable() {
		text = "\n" + text
	}
	o.shown = strings.TrimPrefix(text, "\n")
	_, err = fmt.Fprint(o.streams.Out, text)
	return err
}

func (o *topCommand) text(nodes []nodeqosv1alpha1.NodeQOSResources) (string, error) {
	wide := o.documents.format == formatWide
	switch {
	case o.byNamespace && o.documents.isTable():
		return namespaceTable(useByNamespace(nodes), wide).String(), nil
	case o.byNamespace:
		return documentOf(useByNamespace(nodes), o.documents.format)
	case o.documents.isTable():
		return useTable(useByClass(nodes), wide).String(), nil
	}
	return documentOf(useByClass(nodes), o.documents.format)
}

// noteStale says of which nodes the numbers are those that were known last.
func (c *cluster) noteStale(nodes []nodeqosv1alpha1.NodeQOSResources) {
	var away []string
	for i := range nodes {
		if ready := readyCondition(&nodes[i]); ready == nil || ready.Status != metav1.ConditionTrue {
			away = append(away, nodes[i].Name)
		}
	}
	if len(away) > 0 {
		fmt.Fprintf(c.streams.ErrOut, "Note: of %s it is what was known last: qos-nri-plugin is away there\n", others("", away))
	}
}

// classKey is a class of a resource.
type classKey struct {
	resource string
	scope    nodeqosv1alpha1.Scope
	class    string
}

// useByClass adds up the nodes, in the order of resources and classes on the first node that has them.
func useByClass(nodes []nodeqosv1alpha1.NodeQOSResources) []classUse {
	var all []classUse
	index := map[classKey]int{}
	for i := range nodes {
		for _, r := range scopedResources(&nodes[i]) {
			for j := range r.Classes {
				key := classKey{r.Name, r.scope, r.Classes[j].Name}
				at, known := index[key]
				if !known {
					at = len(all)
					index[key] = at
					all = append(all, classUse{Resource: r.Name, Scope: r.scope, Class: key.class, Capacity: new(int64), Free: new(int64)})
				}
				all[at].add(&r.Classes[j])
			}
		}
	}
	slices.SortStableFunc(all, func(a, b classUse) int { return cmp.Compare(a.Resource, b.Resource) })
	return all
}

func (u *classUse) add(class *nodeqosv1alpha1.QOSResourceClassInfo) {
	u.InUse = sum(u.InUse, class.InUse)
	switch {
	case class.Draining:
		return
	case class.Capacity == 0:
		u.Capacity, u.Free = nil, nil
	case u.Capacity != nil:
		*u.Capacity = sum(*u.Capacity, class.Capacity)
		*u.Free = sum(*u.Free, max(class.Capacity-class.InUse, 0)) // what is too many on one node is no room less on another
	}
	u.Nodes++
}

// sum adds counts, which are not negative. The largest number stands for all that is more.
func sum(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func useTable(all []classUse, wide bool) table {
	rows := table{{"RESOURCE", "CLASS", "NODES", "IN-USE", "CAPACITY", "FREE"}}
	if wide {
		rows[0] = append(rows[0], "SCOPE")
	}
	for _, u := range all {
		row := []string{u.Resource, u.Class, number(&u.Nodes), number(&u.InUse), number(u.Capacity), number(u.Free)}
		if wide {
			row = append(row, string(u.Scope))
		}
		rows = append(rows, row)
	}
	return rows
}

func number(n *int64) string {
	if n == nil {
		return unlimited
	}
	return strconv.FormatInt(*n, 10)
}

// useByNamespace counts holders, by resource, class and namespace.
func useByNamespace(nodes []nodeqosv1alpha1.NodeQOSResources) []namespaceUse {
	var all []namespaceUse
	for _, of := range useByClass(nodes) {
		uses, pods := map[string]*namespaceUse{}, map[[2]string]bool{}
		use := func(namespace string) *namespaceUse {
			if uses[namespace] == nil {
				uses[namespace] = &namespaceUse{Resource: of.Resource, Scope: of.Scope, Class: of.Class, Namespace: namespace}
			}
			return uses[namespace]
		}
		for _, class := range classesOf(nodes, classKey{of.Resource, of.Scope, of.Class}) {
			for _, h := range class.Holders {
				u := use(h.Namespace)
				u.InUse++
				if pod := [2]string{h.Namespace, h.Pod}; !pods[pod] {
					pods[pod] = true
					u.Pods++
				}
			}
			if class.HoldersOmitted > 0 {
				use("").InUse = sum(use("").InUse, class.HoldersOmitted)
			}
		}
		all = append(all, sorted(uses)...)
	}
	return all
}

// sorted has those who have most first, and last those who are not named.
func sorted(uses map[string]*namespaceUse) []namespaceUse {
	all := make([]namespaceUse, 0, len(uses))
	for _, u := range uses {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b namespaceUse) int {
		if (a.Namespace == "") != (b.Namespace == "") {
			return cmp.Compare(b.Namespace, a.Namespace)
		}
		return cmp.Or(cmp.Compare(b.InUse, a.InUse), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}

func classesOf(nodes []nodeqosv1alpha1.NodeQOSResources, key classKey) []*nodeqosv1alpha1.QOSResourceClassInfo {
	var found []*nodeqosv1alpha1.QOSResourceClassInfo
	for i := range nodes {
		for _, r := range scopedResources(&nodes[i]) {
			for j := range r.Classes {
				if key == (classKey{r.Name, r.scope, r.Classes[j].Name}) {
					found = append(found, &r.Classes[j])
				}
			}
		}
	}
	return found
}

func namespaceTable(all []namespaceUse, wide bool) table {
	rows := table{{"RESOURCE", "CLASS", "NAMESPACE", "IN-USE", "PODS"}}
	if wide {
		rows[0] = append(rows[0], "SCOPE")
	}
	for _, u := range all {
		pods := number(&u.Pods)
		if u.Namespace == "" {
			u.Namespace, pods = "<not named>", "unknown"
		}
		row := []string{u.Resource, u.Class, u.Namespace, number(&u.InUse), pods}
		if wide {
			row = append(row, string(u.Scope))
		}
		rows = append(rows, row)
	}
	return rows
}
