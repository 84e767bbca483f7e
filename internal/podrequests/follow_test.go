// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podrequests

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// plugin records updates and answers them with an error.
type plugin struct {
	answer   error
	requests []*qosv1alpha1.UpdateContainerQOSResourcesRequest
}

func (p *plugin) update(_ context.Context, r *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
	p.requests = append(p.requests, r)
	return p.answer
}

func podOf(containers ...*qosv1alpha1.ContainerAssignments) *qosv1alpha1.PodAssignments {
	return &qosv1alpha1.PodAssignments{Uid: "uid-web", Namespace: "default", Name: "web", SandboxId: "sandbox", Containers: containers}
}

const (
	fromContainer = qosv1alpha1.Source_SOURCE_CONTAINER
	fromUpdate    = qosv1alpha1.Source_SOURCE_UPDATE
)

func TestATemporaryFailureIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{answer: status.Error(codes.ResourceExhausted, "class silver is full: 1 of 1 in use")}
		f, pod, has := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=silver"}), podOf(in("gold", fromContainer))
		var waits []time.Duration
		for range 9 {
			outcome := f.Follow(t.Context(), pod, offered(), has)
			if len(outcome.Refused) != 1 || outcome.Refused[0].Message != "class silver is full: 1 of 1 in use" || outcome.Refused[0].Series != "ClassFull" {
				t.Fatalf("after %d tries: %+v; want the refusal", len(p.requests), outcome)
			}
			waits = append(waits, outcome.Again)
			early := f.Follow(t.Context(), pod, offered(), has)
			if len(early.Refused) != 1 || early.Refused[0].Count != uint64(len(p.requests)) {
				t.Fatalf("before the end of the wait: %+v; want the refusal that is known", early)
			}
			<-time.After(outcome.Again)
		}

		if len(p.requests) != 9 {
			t.Errorf("%d requests, want one after each wait", len(p.requests))
		}

		for i, wait := range waits {
			most := min(5*time.Second<<i, 5*time.Minute)
			if wait > most || wait < most*3/4 {
				t.Errorf("wait %d was %v; want about %v, with jitter", i, wait, most)
			}
		}

		p.answer = nil
		if outcome := f.Follow(t.Context(), pod, offered(), has); len(outcome.Refused) > 0 || outcome.Again != 0 {
			t.Errorf("after a slot is free: %+v; want no refusal and no retry", outcome)
		}

		if f.Follow(t.Context(), pod, offered(), has); len(p.requests) != 10 {
			t.Errorf("%d requests, want no more than needed", len(p.requests))
		}
	})
}

func TestAnInvalidRequestIsNotRetriedUntilTheAnnotationsOrTheClassFilesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{answer: status.Error(codes.InvalidArgument, "no")}
		f, pod, has := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=silver"}), podOf(in("gold", fromContainer))
		for range 3 {
			if outcome := f.Follow(t.Context(), pod, offered(), has); len(outcome.Refused) != 1 || outcome.Refused[0].Count != 1 || outcome.Again != 0 {
				t.Fatalf("%+v; want the refusal, and nothing to wait for", outcome)
			}
			<-time.After(time.Hour)
		}

		if len(p.requests) != 1 {
			t.Errorf("%d requests, want one", len(p.requests))
		}

		pod.Annotations[ownKey] = "rdt=bronze"
		if f.Follow(t.Context(), pod, offered(), has); len(p.requests) != 2 {
			t.Errorf("%d requests after the annotations changed, want one more", len(p.requests))
		}

		<-time.After(5 * time.Second) // the shortest time between two requests for a container
		anew := offered()
		anew.Config.Hash = "two"
		if f.Follow(t.Context(), pod, anew, has); len(p.requests) != 3 {
			t.Errorf("%d requests after the configuration changed, want one more", len(p.requests))
		}
	})
}

func TestAnUpdateByAnotherClientIsKeptUntilTheAnnotationChanges(t *testing.T) {
	p := &plugin{}
	f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=gold"})
	f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate)))
	if len(p.requests) != 0 {
		t.Fatalf("the requests are %v; want none, because the update is newer than the annotation", p.requests)
	}
	pod.Annotations[ownKey] = "rdt=bronze"
	f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate)))
	if len(p.requests) != 1 || p.requests[0].GetQosResources()[0].GetClass() != "bronze" || p.requests[0].GetPodUid() != "uid-web" {
		t.Errorf("the requests are %v; want the class of the newer annotation", p.requests)
	}
}

func TestAnUpdateByAnotherClientEndsTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{answer: status.Error(codes.ResourceExhausted, "full")}
		f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=silver"})
		outcome := f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
		<-time.After(outcome.Again)
		outcome = f.Follow(t.Context(), pod, offered(), podOf(in("bronze", fromUpdate)))
		if len(p.requests) != 1 || len(outcome.Refused) > 0 || outcome.Again != 0 {
			t.Errorf("%d requests, outcome %+v; want no request that undoes the later update", len(p.requests), outcome)
		}
	})
}

func TestAnUnavailablePluginIsNotReportedAsARefusal(t *testing.T) {
	p := &plugin{answer: status.Error(codes.Unavailable, "no")}
	outcome := NewFollower(p.update).Follow(t.Context(), webPod(map[string]string{ownKey: "rdt=silver"}), offered(), podOf(in("gold", fromContainer)))
	if len(p.requests) != 1 || len(outcome.Refused) > 0 || outcome.Again == 0 {
		t.Errorf("%d requests, outcome %+v; want a retry and no refusal", len(p.requests), outcome)
	}
}

func TestAContainerThatDoesNotRunIsSkipped(t *testing.T) {
	p := &plugin{}
	pod := webPod(map[string]string{ownKey: "rdt=silver"})
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{}
	NewFollower(p.update).Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	if len(p.requests) > 0 {
		t.Errorf("the requests are %v, want none before the container runs", p.requests)
	}
}

func TestMirrorPodsAreSkipped(t *testing.T) {
	p := &plugin{}
	pod := webPod(map[string]string{ownKey: "rdt=silver", corev1.MirrorPodAnnotationKey: "hash"})
	NewFollower(p.update).Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	if len(p.requests) > 0 {
		t.Errorf("the requests are %v, want none", p.requests)
	}
}

func TestARestartedContainerFollowsTheAnnotations(t *testing.T) {
	p := &plugin{}
	f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=gold"})
	f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	pod.Annotations[ownKey] = "rdt=silver"
	f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	// The restarted container has the class that the sandbox's annotations requested before the change.
	restarted := in("gold", fromContainer)
	restarted.Id = "id-again"
	pod.Status.ContainerStatuses[0].ContainerID = "containerd://id-again"
	f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate), restarted))
	if len(p.requests) != 2 || p.requests[1].GetQosResources()[0].GetClass() != "silver" {
		t.Errorf("the requests are %v; want silver for the container and for its successor", p.requests)
	}
}

// TestAnnotationsThatChangeContinuouslyAreFollowedAtALimitedRate changes an annotation twice a second for a minute. The
// follower sends a request every 5 s. While the class is full, it retries after 4, 12, 28 and 60 s at the earliest.
func TestAnnotationsThatChangeContinuouslyAreFollowedAtALimitedRate(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		most   int
	}{
		"when the requests succeed":     {nil, 13},
		"when the requests are invalid": {status.Error(codes.InvalidArgument, "no"), 13},
		"when the class is full":        {status.Error(codes.ResourceExhausted, "full"), 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &plugin{answer: c.answer}
				f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=gold"})
				for i := range 120 {
					pod.Annotations[ownKey] = "rdt=" + []string{"silver", "bronze"}[i%2]
					f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
					<-time.After(500 * time.Millisecond)
				}

				if len(p.requests) < 2 || len(p.requests) > c.most {
					t.Errorf("%d requests in a minute, want at most %d", len(p.requests), c.most)
				}

				last := "rdt=silver"
				pod.Annotations[ownKey] = last
				if outcome := f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer))); outcome.Again > 0 {
					<-time.After(outcome.Again)
					f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
				}

				if got := p.requests[len(p.requests)-1].GetQosResources()[0].GetClass(); got != "silver" {
					t.Errorf("the last request is for %s, want the class of the latest annotations", got)
				}
			})
		})
	}
}

func TestAnAnnotationThatRequestsTheCurrentClassEndsTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{answer: status.Error(codes.ResourceExhausted, "full")}
		f, pod, has := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=silver"}), podOf(in("gold", fromContainer))
		f.Follow(t.Context(), pod, offered(), has)
		pod.Annotations[ownKey] = "rdt=gold"
		if outcome := f.Follow(t.Context(), pod, offered(), has); len(outcome.Refused) > 0 || outcome.Again != 0 || len(p.requests) != 1 {
			t.Errorf("%d requests, outcome %+v; want nothing left to do", len(p.requests), outcome)
		}
	})
}

func TestAnAnnotationOfAnotherContainerIsIgnored(t *testing.T) {
	p := &plugin{}
	f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=gold"})
	f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	for _, key := range []string{"container.qos.noderesource.dev/other", "rdt.resources.kubernetes.io/container.other", "rdt.resources.beta.kubernetes.io/container.other"} {
		pod.Annotations[key] = "silver"
		f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate)))
	}

	if len(p.requests) > 0 {
		t.Errorf("the requests are %v; want none, because no annotation of the container has changed", p.requests)
	}

	// An annotation of the pod is for this container, too. So its annotations are newer than the update now, and ask for gold again. The
	// network is a resource of pods, and needs no request here.
	pod.Annotations[podKey] = "vendor.example/network=fast"
	if f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate))); len(p.requests) != 1 {
		t.Errorf("%d requests after an annotation for all containers, want one", len(p.requests))
	}
}
