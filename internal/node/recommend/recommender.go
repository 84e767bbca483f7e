// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// A recommendation needs at least `enoughPoints` points, which cover at least `enoughTime`.
const (
	enoughTime   = 5 * time.Minute
	enoughPoints = 12
)

// The errors of Recommend wrap these errors or those of package history.
var (
	// ErrNoClass means that no class of the node limits anything that is recorded.
	ErrNoClass = errors.New("no class of this node limits what is recorded")
	// ErrEnded means that the selected containers do not run any more.
	ErrEnded = errors.New("the selected containers have ended")
)

// Recommender answers requests from the history.
type Recommender struct {
	store    *state.View
	recorder *history.Recorder
}

// New returns a recommender. It does no I/O.
func New(store *state.View, recorder *history.Recorder) *Recommender {
	return &Recommender{store: store, recorder: recorder}
}

// Recommend finds the classes that fit the selected containers of a pod. It changes nothing. It answers one request at
// a time. `ctx` limits how long it waits for other requests.
func (r *Recommender) Recommend(ctx context.Context, s history.Selection) (reports.Recommendations, error) {
	if s == (history.Selection{}) {
		return reports.Recommendations{}, fmt.Errorf("%w: name the pod", history.ErrInvalid)
	}
	if err := s.Check(); err != nil {
		return reports.Recommendations{}, err
	}
	w, done, err := r.recorder.Borrow(ctx)
	if err != nil {
		return reports.Recommendations{}, err
	}
	defer done()
	v := view{r.store, w, r.store.Live(), r.store.Status()}
	selected, err := v.selected(s)
	if err != nil {
		return reports.Recommendations{}, err
	}

	var all, ofPods []reports.Recommendation
	for _, resource := range v.resources() {
		switch {
		case resource.Scope == classes.ContainerScope:
			for _, i := range selected {
				add(&all, v.ofContainer(resource, i))
			}
		case s.Container == "":
			add(&all, v.ofPod(resource, selected))
		default:
			add(&ofPods, v.ofPod(resource, selected))
		}
	}
	switch {
	case len(all) > 0:
	case len(ofPods) > 0:
		return reports.Recommendations{}, fmt.Errorf("%w of a single container: the classes of resource %s limit whole pods; ask for pod %s/%s without a container",
			ErrNoClass, ofPods[0].Resource, s.Namespace, s.Pod)
	default:
		return reports.Recommendations{}, fmt.Errorf("%w: add one with a limit of block I/O, memory, memory bandwidth or cache to the class files", ErrNoClass)
	}
	slices.SortStableFunc(all, func(a, b reports.Recommendation) int { return cmp.Compare(a.Name, b.Name) })
	return reports.Recommendations{Recommendations: all}, nil
}

// add adds a recommendation that is not empty.
func add(all *[]reports.Recommendation, of reports.Recommendation) {
	if of.Problem != "" || of.Outcome != "" {
		*all = append(*all, of)
	}
}

// view has the data for the answer to one request.
type view struct {
	*state.View
	window history.Window
	live   state.Offering
	status state.Status
}

// selected returns the tracks of the selected containers that still run. Init containers, for example, have ended.
func (v *view) selected(s history.Selection) ([]int, error) {
	selected, err := v.window.Select(s)
	if err != nil {
		return nil, err
	}
	running := slices.DeleteFunc(selected, func(i int) bool {
		e, known := v.Get(v.window.Tracks[i].ID)
		return !known || !e.Phase.Started()
	})
	if len(running) == 0 {
		return nil, fmt.Errorf("%w: ask again when pod %s/%s runs", ErrEnded, s.Namespace, s.Pod)
	}
	return running, nil
}

// resource is a resource whose classes have limits.
type resource struct {
	*state.ResourceStatus
	promiser classes.Promiser
	// `shared` is true if all containers of a class share its limits. The values of these limits have not changed since
	// `valuesSince`.
	shared      bool
	valuesSince time.Time
}

// resources returns the resources of containers and pods whose backends report limits.
func (v *view) resources() (all []resource) {
	for i := range v.status.Resources {
		status := &v.status.Resources[i]
		live := v.live.Resources[status.Name]
		promiser, is := live.Promiser()
		if !is || status.Scope == classes.VolumeScope {
			continue
		}
		_, shared := promiser.(classes.ClassMeter)
		all = append(all, resource{status, promiser, shared, live.ValuesSince})
	}
	return all
}

// ofContainer returns the recommendation for the container of a track.
func (v *view) ofContainer(of resource, track int) reports.Recommendation {
	t := &v.window.Tracks[track]
	e, runs := v.Get(t.ID)
	if !runs {
		return reports.Recommendation{} // it has just ended
	}
	return v.recommend(of, e, t.Container, []int{track})
}

// ofPod returns the recommendation for the pod whose containers have the given `tracks`.
func (v *view) ofPod(of resource, tracks []int) reports.Recommendation {
	t := v.window.Tracks[tracks[0]].Container
	t.Name, t.ID = "", ""
	holdings := v.InPod(t.PodUID, func(e *state.Holding) bool { return e.Scope() == classes.PodScope && e.Phase.Started() })
	if len(holdings) == 0 {
		return reports.Recommendation{} // it has just ended
	}
	return v.recommend(of, holdings[0], t, tracks)
}

// recommend returns the recommendation for a container or pod with the given `tracks`. It is empty if no class has a
// limit.
func (v *view) recommend(of resource, e state.Holding, c reports.Container, tracks []int) reports.Recommendation {
	promises := of.promises(e)
	if len(promises) == 0 {
		return reports.Recommendation{}
	}
	r := reports.Recommendation{Container: c, Resource: of.Name, Present: e.ObservedClass(of.Name), Mutable: of.Mutable}
	if r.Problem = cmp.Or(unsettled(e, of.Name), v.noRoom(promises, e, tracks)); r.Problem != "" {
		return r
	}
	s := v.span(of, e, tracks)
	r.Points = s.to - s.from
	if r.Problem = v.tooLittle(s); r.Problem != "" {
		return r
	}
	r.From, r.To = v.window.Times[s.from], v.window.Times[s.to]

	d, problem := v.demand(of, promises, r.Present, tracks, s)
	if r.Problem = problem; d == nil {
		return r
	}
	r.Advice = Judge(d)
	for _, class := range of.Classes {
		if class.Name == r.Class && r.Class != r.Present {
			r.Full = of.IsFull(class)
		}
	}
	if r.Outcome == reports.Add {
		r.ClassFile = classFile(of, c, r.Figures)
	}
	return r
}

// unsettled returns the reason why the use of a container does not show the effect of its class, or "" if it does.
func unsettled(e state.Holding, resource string) string {
	switch want, has := e.Class(resource), e.ObservedClass(resource); {
	case want != has:
		return fmt.Sprintf("its class is being changed from %q to %q; ask again when the change is made", has, want)
	case e.Stale[resource] != "":
		return fmt.Sprintf("it still has %s of an earlier version of its class; recreate the pod, and ask again", e.Stale[resource])
	case e.Foreign[resource] != "":
		return fmt.Sprintf("another program has set %s, so its use does not show what it needs", e.Foreign[resource])
	case e.NotEnforced[resource] != "":
		return fmt.Sprintf("its class is not enforced: %s", e.NotEnforced[resource])
	}
	return ""
}

// noRoom returns a message if the history had no room for some of the containers or disks that the classes limit, or
// "".
func (v *view) noRoom(promises map[string][]classes.Promise, e state.Holding, tracks []int) string {
	if v.window.Incomplete > 0 && e.Scope() == classes.PodScope {
		running := v.InPod(e.PodUID, func(c *state.Holding) bool { return c.Scope() == classes.ContainerScope && c.Phase.Started() })
		if len(running) > len(tracks) {
			return "the history has no room for all of its containers; ask on a node with fewer disks or containers"
		}
	}

	parts := false // e.g. disks
	for _, of := range promises {
		parts = parts || slices.ContainsFunc(of, func(p classes.Promise) bool { return p.Use.Part != "" })
	}
	if parts && slices.ContainsFunc(tracks, func(i int) bool { return v.window.Tracks[i].Incomplete }) {
		return "the history has no room for all disks that it uses; ask on a node with fewer disks or containers"
	}
	return ""
}

// span has the points from `from` to `to`-1.
type span struct{ from, to int }

// span returns the points in which the containers of `tracks` ran with the present values of their class. A change of
// shared limits does not change InForce of the containers, so span also honours `valuesSince`.
func (v *view) span(of resource, e state.Holding, tracks []int) span {
	since := e.InForce
	if of.shared && of.valuesSince.After(since) {
		since = of.valuesSince
	}
	s := span{v.window.Points(), 0}
	for _, i := range tracks {
		s.from, s.to = min(s.from, v.window.Tracks[i].From), max(s.to, min(v.window.Tracks[i].To, v.window.Points()))
	}
	for s.from < s.to && v.window.Times[s.from].Before(since) {
		s.from++
	}
	s.from = min(s.from, s.to)
	return s
}

// tooLittle returns a message if the span is too short for a recommendation, or "".
func (v *view) tooLittle(s span) string {
	recorded, point := time.Duration(0), enoughTime/enoughPoints
	if s.to > s.from {
		recorded = v.window.Times[s.to].Sub(v.window.Times[s.from])
		point = recorded / time.Duration(s.to-s.from)
	}
	missing := max(enoughTime-recorded, time.Duration(enoughPoints-(s.to-s.from))*point)
	if missing <= 0 {
		return ""
	}
	return fmt.Sprintf("too little is recorded: %s since the container started or its class changed, and %s are needed; ask again in %s",
		recorded.Round(time.Second), (recorded + missing).Round(time.Second), missing.Round(time.Second))
}
