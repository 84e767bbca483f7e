// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// Violations returns the violations in the state of a node, one line each. The node must have settled: no change may be under way.
// Classes of resources that the API reports as unavailable, or does not report, are not checked.
func Violations(w World) []string {
	c := newCheck(w)
	c.ledger()
	c.sandboxes()
	c.counts()
	c.capacity()
	c.groups()
	c.monitors()
	c.schemata()
	c.classes()
	c.volumes()
	c.kubernetes()
	c.held()
	c.foreign()
	return c.found
}

// Always returns the violations of what must hold at every moment: bounded classes do not exceed their capacity, and foreign
// groups and files are unchanged.
func Always(w World) []string {
	c := newCheck(w)
	c.capacity()
	c.foreign()
	return c.found
}

type check struct {
	World
	// offered has the resources in the API's status by name, including draining resources.
	offered map[string]*qosv1alpha1.QOSResourceInfo
	// podScope has the names of the offered resources that are assigned to pods.
	podScope map[string]bool
	// holders has the containers that the API reports, and the pods for resources of pod scope.
	holders []holder
	found   []string
}

// holder is a container or a pod that the API reports. For a pod, the field `container` is empty.
type holder struct {
	pod       *qosv1alpha1.PodAssignments
	container string
	id        string
	classes   []*qosv1alpha1.Assignment
}

func (h holder) String() string {
	text := fmt.Sprintf("pod %s/%s", h.pod.GetNamespace(), h.pod.GetName())
	if h.container != "" {
		text += " container " + h.container
	}
	return text + " (" + clip(h.id) + ")"
}

func (c Container) String() string {
	return fmt.Sprintf("pod %s/%s container %s (%s)", c.PodNamespace, c.PodName, c.Name, clip(c.ID))
}

// clip shortens an ID as container tools do.
func clip(id string) string { return id[:min(len(id), 12)] }

func newCheck(w World) *check {
	c := &check{World: w, offered: map[string]*qosv1alpha1.QOSResourceInfo{}, podScope: map[string]bool{}}
	for _, r := range w.Status.GetResources().GetContainerQosResources() {
		c.offered[r.GetName()] = r
	}

	for _, r := range w.Status.GetResources().GetPodQosResources() {
		c.offered[r.GetName()], c.podScope[r.GetName()] = r, true
	}

	for _, pod := range w.Assignments.GetPods() {
		c.holders = append(c.holders, holder{pod: pod, id: pod.GetSandboxId(), classes: pod.GetQosResources()})
		for _, ctr := range pod.GetContainers() {
			c.holders = append(c.holders, holder{pod: pod, container: ctr.GetName(), id: ctr.GetId(), classes: ctr.GetQosResources()})
		}
	}

	return c
}

func (c *check) wrong(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// held reports the classes whose condition is not healthy. No container of the tests uses more than its class allows,
// so every limit must hold.
func (c *check) held() {
	for _, name := range slices.Sorted(maps.Keys(c.offered)) {
		for _, class := range c.offered[name].GetClasses() {
			for _, condition := range class.GetConditions() {
				if !condition.GetHealthy() {
					c.wrong("class %q of %s: %s: %s", class.GetName(), name, condition.GetReason(), condition.GetMessage())
				}
			}
		}
	}
}

// ledger compares the reported containers with those of the runtime. A container without a request need not be reported before
// it has started.
func (c *check) ledger() {
	reported := map[string]bool{}
	live := map[string]Container{}
	for _, ctr := range c.Live.Containers {
		live[ctr.ID] = ctr
	}

	for _, h := range c.holders {
		ctr, lives := live[h.id]
		switch {
		case h.container == "":
		case reported[h.id]:
			c.wrong("%s is reported twice", h)
		case !lives:
			c.wrong("%s is reported, but does not exist any more", h)
		case ctr.PodUID != h.pod.GetUid() || ctr.Name != h.container:
			c.wrong("%s is reported as %s", ctr, h)
		}
		reported[h.id] = true
	}

	for _, ctr := range c.Live.Containers {
		if !reported[ctr.ID] && (ctr.Started || ctr.Recorded) {
			c.wrong("%s exists, but is not reported", ctr)
		}
	}
}

// sandboxes compares the reported pods with those of the runtime. The plugin reports all pods only if pods have
// classes.
func (c *check) sandboxes() {
	live, reported := map[string]bool{}, map[string]bool{}
	for _, pod := range c.Live.Pods {
		live[pod.UID+" "+pod.ID] = true
	}

	for _, h := range c.holders {
		if h.container != "" {
			continue
		}
		if reported[h.pod.GetUid()] = true; !live[h.pod.GetUid()+" "+h.id] {
			c.wrong("%s is reported, but does not exist any more", h)
		}
	}

	for _, pod := range c.Live.Pods {
		if len(c.podScope) > 0 && !reported[pod.UID] {
			c.wrong("pod %s/%s (%s) exists, but is not reported", pod.Namespace, pod.Name, clip(pod.ID))
		}
	}
}

// counts compares the numbers in use with the assignments. If a holder could not be moved into its class, the
// holder has two slots: one in its own class, and one in the reported class.
func (c *check) counts() {
	for _, name := range slices.Sorted(maps.Keys(c.offered)) {
		owners, misplaced := c.owners(name)
		known := map[string]bool{}
		for _, class := range c.offered[name].GetClasses() {
			known[class.GetName()] = true
			has := uint64(len(owners[class.GetName()]))
			if used := class.GetInUse(); used < has || used > has+uint64(misplaced) {
				c.wrong("class %q of %s has %d in use, but %d are reported in it", class.GetName(), name, used, has)
			}
		}
		for _, class := range slices.Sorted(maps.Keys(owners)) {
			if !known[class] {
				c.wrong("%d are reported in class %q of %s, and the status has no such class", len(owners[class]), class, name)
			}
		}
	}
}

// owners returns the holders that are reported in each class. Containers of a pod with the same name count once. It leaves out
// the holders that are reported in the class that the plugin observed, because that is not their own. `misplaced` is their number.
func (c *check) owners(resource string) (owners map[string]map[string]bool, misplaced int) {
	owners = map[string]map[string]bool{}
	for _, h := range c.holders {
		for _, a := range h.classes {
			switch {
			case a.GetName() != resource:
			case a.GetSource() == qosv1alpha1.Source_SOURCE_ADOPTED:
				misplaced++
			case a.GetClass() != "":
				if owners[a.GetClass()] == nil {
					owners[a.GetClass()] = map[string]bool{}
				}
				owners[a.GetClass()][h.pod.GetUid()+" "+h.container] = true
			}
		}
	}

	return owners, misplaced
}

func (c *check) capacity() {
	for _, name := range slices.Sorted(maps.Keys(c.offered)) {
		for _, class := range c.offered[name].GetClasses() {
			most := max(class.GetCapacity(), c.Expect.Most[Class{name, class.GetName()}])
			if class.GetCapacity() > 0 && class.GetInUse() > most {
				c.wrong("class %q of %s is in use by %d, more than its capacity of %d, and more than before the capacity was lowered",
					class.GetName(), name, class.GetInUse(), class.GetCapacity())
			}
		}
	}
}

func (c *check) foreign() {
	if c.Before == nil {
		return
	}

	for _, path := range slices.Sorted(maps.Keys(c.Before)) {
		now, there := c.Foreign[path]
		switch {
		case !there:
			c.wrong("foreign %s was removed", path)
		case now != c.Before[path]:
			c.wrong("foreign %s was changed from %s to %s", path, oneLine(c.Before[path]), oneLine(now))
		}
	}

	for _, path := range slices.Sorted(maps.Keys(c.Foreign)) {
		if _, before := c.Before[path]; !before {
			c.wrong("foreign %s is new", path)
		}
	}
}

func oneLine(text string) string { return fmt.Sprintf("%q", strings.Join(strings.Fields(text), " ")) }
