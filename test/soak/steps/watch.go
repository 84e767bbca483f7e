// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// statusTimeout limits one request of the plugin's status between steps, because the plugin may have been killed.
const statusTimeout = 10 * time.Second

// seen is the last observed state of the running plugin.
type seen struct {
	// file is the number of the class file that was in force.
	file int
	// `most` is the number of holders of each class.
	most map[invariant.Class]uint64
	// unseen is the number of operations since the last observation.
	unseen uint64
}

// watch checks, between steps, the invariants that hold at every moment. A class may have more holders than its
// capacity only if they were admitted before the capacity was lowered.
func (s *Soak) watch(ctx context.Context, operations int) []string {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	wrong, err := s.watchForeign()
	if err != nil {
		return []string{err.Error()}
	}

	s.seen.unseen += uint64(operations)
	status := s.status(ctx)
	runtime := status.GetRuntime()
	if !runtime.GetRegistered() || time.Since(runtime.GetRegisteredAt().AsTime()) < quietTime {
		return wrong // the assignments are not known yet
	}

	expect := invariant.Expect{Most: s.most(status)}
	wrong = append(wrong, invariant.Always(invariant.World{Status: status, Expect: expect})...)
	s.seen.file, s.seen.unseen = fileInForce(status), 0
	// A class that is not reported keeps its count, because it may have holders: after a restart, the plugin does not
	// know classes that are not configured. The count of a class of pods becomes lower only when the node is settled: if
	// a class file adds the first class of pods, the plugin does not know the pods before it has registered again.
	eachClass(status, func(resource string, class *qosv1alpha1.QOSResourceClassInfo) {
		has, now := invariant.Class{Resource: resource, Name: class.GetName()}, class.GetInUse()
		if resource == podIO && operations > 0 {
			now = max(now, s.seen.most[has])
		}
		s.seen.most[has] = now
	})

	return wrong
}

// watchForeign checks foreign groups and files, and accepts changes by the action `foreigners`.
func (s *Soak) watchForeign() ([]string, error) {
	others, ok := s.site.(Others)
	if !ok {
		return nil, nil
	}
	now, err := invariant.ForeignOf(s.site.Host(), others.ForeignFiles()...)
	if err != nil {
		return nil, fmt.Errorf("read the state of other programs: %w", err)
	}
	s.keepForeign(now)
	return invariant.Always(invariant.World{Foreign: now, Before: s.before}), nil
}

// keepForeign records the foreign groups and files that must not change. While resctrl is not mounted, the record is
// incomplete, so the next call records them again.
func (s *Soak) keepForeign(now map[string]string) {
	if s.foreignChanged {
		_, mounted := now["/sys/fs/resctrl/schemata"]
		s.before, s.foreignChanged = now, !mounted
	}
}

// status returns the plugin's status, or nil without a plugin.
func (s *Soak) status(ctx context.Context) *qosv1alpha1.StatusResponse {
	api := s.site.API()
	if api == nil {
		return nil
	}
	status, err := api.Status(ctx, &qosv1alpha1.StatusRequest{})
	if err != nil {
		return nil // the plugin may have been killed meanwhile
	}
	return status
}

// noteRetries records the holders that classes have gained without an operation of the soak. Classes gain such holders because
// the plugin retries pending requests, and admits them when there is room. If a class file later lowers the capacity of the
// class, the class may keep these holders.
func (s *Soak) noteRetries(status *qosv1alpha1.StatusResponse) {
	if fileInForce(status) != s.seen.file {
		return
	}
	eachClass(status, func(resource string, class *qosv1alpha1.QOSResourceClassInfo) {
		if class.GetCapacity() == 0 || class.GetInUse() <= class.GetCapacity() {
			has := invariant.Class{Resource: resource, Name: class.GetName()}
			s.seen.most[has] = max(s.seen.most[has], class.GetInUse())
		}
	})
}

// most returns the number of holders that each class may have. This is the last observed number. If several operations
// were done since then, or if another class file is in force, it is higher by one for each operation since then.
func (s *Soak) most(status *qosv1alpha1.StatusResponse) map[invariant.Class]uint64 {
	most := map[invariant.Class]uint64{}
	eachClass(status, func(resource string, class *qosv1alpha1.QOSResourceClassInfo) {
		has := invariant.Class{Resource: resource, Name: class.GetName()}
		most[has] = s.seen.most[has]
		if s.seen.unseen > 1 || fileInForce(status) != s.seen.file {
			most[has] += s.seen.unseen
		}
	})
	return most
}

func eachClass(status *qosv1alpha1.StatusResponse, do func(resource string, class *qosv1alpha1.QOSResourceClassInfo)) {
	resources := status.GetResources()
	for _, r := range slices.Concat(resources.GetPodQosResources(), resources.GetContainerQosResources()) {
		for _, class := range r.GetClasses() {
			do(r.GetName(), class)
		}
	}
}

// fileInForce returns the number of the class file from the descriptions of its classes, or 0.
func fileInForce(status *qosv1alpha1.StatusResponse) int {
	number := 0
	eachClass(status, func(_ string, class *qosv1alpha1.QOSResourceClassInfo) {
		if text, found := strings.CutPrefix(class.GetDescription(), "file "); found {
			_, _ = fmt.Sscan(text, &number) // the soak itself writes this number
		}
	})
	return number
}
