// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podrequests

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// A change that may succeed later is tried again after firstWait, then after twice that and so on, until longestWait.
	firstWait   = 5 * time.Second
	longestWait = 5 * time.Minute
	// minInterval is the shortest time between two changes of one container, however fast its pod's annotations change.
	minInterval = 5 * time.Second
	// updateTimeout bounds one change.
	updateTimeout = 30 * time.Second
)

// Update asks the plugin for other classes. Its errors carry the node API's codes.
type Update func(ctx context.Context, request *qosv1alpha1.UpdateContainerQOSResourcesRequest) error

// Refused is a change that was asked for and not made.
type Refused struct {
	// Container is empty for a class of the pod itself.
	Container string
	// Reason is a word in CamelCase for programs.
	Reason string
	// Message is a line for people that names the remedy.
	Message string
	// Count says how often it was refused, between First and Last.
	Count       uint64
	First, Last time.Time
}

// Outcome is what came of following a pod.
type Outcome struct {
	// Refused are the changes that the pod asks for and does not have, as far as its annotations are to blame.
	Refused []Refused
	// Again is after which time Follow has something to do; 0 when it has not before something changes.
	Again time.Duration
}

// Follower brings running pods along to what their annotations ask for. It looks at each container once for each set of
// annotations, so that a change of other origin is not fought over. It is safe for concurrent use, one call a pod at a time.
type Follower struct {
	update Update

	mu sync.Mutex // guards the maps
	// By the API's UID, which nobody can choose, then by ID of container or sandbox.
	pods map[types.UID]map[string]*record
}

// record is what is known of a container, or with the ID of the sandbox of a pod.
type record struct {
	// hash is of the annotations that it is of.
	hash string
	// config is that by which it was refused.
	config string
	// first says that it had not been seen before these annotations.
	first bool
	// seen says that it was looked at since.
	seen    bool
	settled bool
	tries   int
	next    time.Time
	refused *Refused
	// had is what it had at the first try.
	had *qosv1alpha1.ContainerAssignments
}

// NewFollower makes a follower that asks for changes by update. It does no I/O.
func NewFollower(update Update) *Follower {
	return &Follower{update: update, pods: map[types.UID]map[string]*record{}}
}

// Forget drops what is known of a pod that is gone, by the API's UID of it.
func (f *Follower) Forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, uid)
}

// Follow asks the plugin for what the pod's annotations ask for and its running containers do not have. status and has are
// what the plugin told last.
func (f *Follower) Follow(
	ctx context.Context, pod *corev1.Pod, told *qosv1alpha1.StatusResponse, has *qosv1alpha1.PodAssignments,
) Outcome {
	if mirror(pod) || has == nil {
		return Outcome{}
	}
	c := call{pod: pod, told: told, records: f.recordsOf(pod.UID), update: f.update}
	kept := map[string]bool{}
	if len(has.GetQosResources()) > 0 {
		kept[has.GetSandboxId()] = true
		itself := &qosv1alpha1.ContainerAssignments{Id: has.GetSandboxId(), QosResources: has.GetQosResources()}
		c.follow(itself.GetId(), "", func(r *record) { c.try(ctx, r, itself) })
	}
	for _, ctr := range has.GetContainers() {
		kept[ctr.GetId()] = true
		if running(pod, ctr.GetId()) && ctx.Err() == nil {
			c.follow(ctr.GetId(), ctr.GetName(), func(r *record) { c.try(ctx, r, ctr) })
		}
	}
	for id := range c.records {
		if !kept[id] {
			delete(c.records, id)
		}
	}
	return c.outcome
}

func (f *Follower) recordsOf(uid types.UID) map[string]*record {
	f.mu.Lock()
	defer f.mu.Unlock()
	records := f.pods[uid]
	if records == nil {
		records = map[string]*record{}
		f.pods[uid] = records
	}
	return records
}

// call is one call of Follow.
type call struct {
	pod     *corev1.Pod
	told    *qosv1alpha1.StatusResponse
	catalog *classes.Catalog
	records map[string]*record
	update  Update
	outcome Outcome
}

func (c *call) offers() *classes.Catalog {
	if c.catalog == nil {
		c.catalog = Catalog(c.told)
	}
	return c.catalog
}

// follow tries what is due of a container, or with no name of the pod.
func (c *call) follow(id, container string, try func(*record)) {
	r := c.recordOf(id, hash(c.pod.Annotations, container))
	if config := c.told.GetConfig().GetHash(); r.settled && r.refused != nil && r.config != config {
		r.settled, r.tries = false, 0 // what was refused may be offered now
	}
	if !r.settled && (!r.seen || !time.Now().Before(r.next)) {
		r.seen = true
		r.config = c.told.GetConfig().GetHash()
		try(r)
	}
	if r.refused != nil {
		c.outcome.Refused = append(c.outcome.Refused, *r.refused)
	}
	if wait := time.Until(r.next); !r.settled && (c.outcome.Again == 0 || wait < c.outcome.Again) {
		c.outcome.Again = max(wait, time.Millisecond)
	}
}

// recordOf is that of the present annotations. Other annotations are no reason to ask sooner than before: whoever writes them could
// keep the plugin busy.
func (c *call) recordOf(id, hash string) *record {
	r := c.records[id]
	switch {
	case r == nil:
		r = &record{hash: hash, first: true}
	case r.hash != hash:
		r = &record{hash: hash, tries: r.tries, next: r.next, refused: r.refused}
	}
	c.records[id] = r
	return r
}

// try asks for what a container, or without a name the pod, should have and has not.
func (c *call) try(ctx context.Context, r *record, has *qosv1alpha1.ContainerAssignments) {
	if r.byHand(has) {
		r.settle(nil, "")
		return
	}
	changes, err := plan(c.offers(), c.pod, has, r.first)
	if err != nil || len(changes) == 0 {
		r.settle(err, has.GetName())
		return
	}
	if time.Now().Before(r.next) {
		r.had = has
		return
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	err = c.update(ctx, &qosv1alpha1.UpdateContainerQOSResourcesRequest{
		PodUid: UID(c.pod), Container: has.GetName(), QosResources: changes,
	})
	if passing(err) {
		r.again(err, has)
		return
	}
	r.tries, r.next = 0, time.Now().Add(minInterval)
	r.settle(err, has.GetName())
}

// byHand says whether somebody else changed the container since it was tried first.
func (r *record) byHand(has *qosv1alpha1.ContainerAssignments) bool {
	for _, before := range r.had.GetQosResources() {
		for _, now := range has.GetQosResources() {
			if now.GetName() == before.GetName() && now.GetClass() != before.GetClass() && now.GetSource() == qosv1alpha1.Source_SOURCE_UPDATE {
				return true
			}
		}
	}
	return false
}

// settle ends the matter until something changes.
func (r *record) settle(err error, container string) {
	r.settled, r.had = true, nil
	if err == nil {
		r.refused = nil
		return
	}
	r.refuse(err, container)
}

// again lets it be tried later.
func (r *record) again(err error, has *qosv1alpha1.ContainerAssignments) {
	if r.had == nil {
		r.had = has
	}
	if blames(err) {
		r.refuse(err, has.GetName())
	}
	step := longestWait
	if r.tries < 10 {
		step = min(firstWait<<r.tries, longestWait)
	}
	r.tries++
	r.next = time.Now().Add(step - time.Duration(rand.Float64()*float64(step)/4))
}

func (r *record) refuse(err error, container string) {
	now := time.Now()
	reason := reasonOf(err)
	if r.refused == nil || r.refused.Reason != reason {
		r.refused = &Refused{Container: container, Reason: reason, First: now}
	}
	r.refused.Count++
	r.refused.Last = now
	r.refused.Message = messageOf(err)
}

// messageOf leaves out what gRPC says around what the plugin said.
func messageOf(err error) string {
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	return strings.Join(strings.Fields(text), " ")
}

func reasonOf(err error) string {
	switch code := status.Code(err); code {
	case codes.ResourceExhausted:
		return "ClassFull"
	case codes.Unknown: // it did not come from the plugin
		return "BadRequest"
	default:
		return code.String()
	}
}

// passing says whether a change that failed may succeed without any other request.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented:
		return false
	}
	return true
}

// blames says whether a failure is about what was asked for, and not about a plugin or a container that is not there.
func blames(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.NotFound:
		return false
	}
	return true
}

func running(pod *corev1.Pod, id string) bool {
	s := pod.Status
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil && strings.HasSuffix(list[i].ContainerID, "://"+id) {
				return true
			}
		}
	}
	return false
}
