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

// plugin answers updates by answer, and counts them.
type plugin struct {
	answer error
	asked  []*qosv1alpha1.UpdateContainerQOSResourcesRequest
}

func (p *plugin) update(_ context.Context, r *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
	p.asked = append(p.asked, r)
	return p.answer
}

func podOf(containers ...*qosv1alpha1.ContainerAssignments) *qosv1alpha1.PodAssignments {
	return &qosv1alpha1.PodAssignments{Uid: "uid-web", Namespace: "default", Name: "web", SandboxId: "sandbox", Containers: containers}
}

const (
	fromContainer = qosv1alpha1.Source_SOURCE_CONTAINER
	fromUpdate    = qosv1alpha1.Source_SOURCE_UPDATE
)

func TestAFailureThatCanPassIsTriedAgainLaterAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{answer: status.Error(codes.ResourceExhausted, "class silver is full: 1 of 1 in use")}
		f, pod, has := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=silver"}), podOf(in("gold", fromContainer))
		var waits []time.Duration
		for range 9 {
			outcome := f.Follow(t.Context(), pod, offered(), has)
			if len(outcome.Refused) != 1 || outcome.Refused[0].Message != "class silver is full: 1 of 1 in use" || outcome.Refused[0].Series != "ClassFull" {
				t.Fatalf("after %d tries: %+v; want the refusal", len(p.asked), outcome)
			}
			waits = append(waits, outcome.Again)
			early := f.Follow(t.Context(), pod, offered(), has)
			if len(early.Refused) != 1 || early.Refused[0].Count != uint64(len(p.asked)) {
				t.Fatalf("before its time: %+v; want what is known", early)
			}
			<-time.After(outcome.Again)
		}
		if len(p.asked) != 9 {
			t.Errorf("asked %d times, want once each time", len(p.asked))
		}
		for i, wait := range waits {
			most := min(5*time.Second<<i, 5*time.Minute)
			if wait > most || wait < most*3/4 {
				t.Errorf("wait %d was %v; want about %v, and not all nodes at once", i, wait, most)
			}
		}
		p.answer = nil
		if outcome := f.Follow(t.Context(), pod, offered(), has); len(outcome.Refused) > 0 || outcome.Again != 0 {
			t.Errorf("when there is room: %+v; want it done", outcome)
		}
		if f.Follow(t.Context(), pod, offered(), has); len(p.asked) != 10 {
			t.Errorf("asked %d times, want no more than needed", len(p.asked))
		}
	})
}

func TestABadRequestIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{answer: status.Error(codes.InvalidArgument, "no")}
		f, pod, has := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=silver"}), podOf(in("gold", fromContainer))
		for range 3 {
			if outcome := f.Follow(t.Context(), pod, offered(), has); len(outcome.Refused) != 1 || outcome.Refused[0].Count != 1 || outcome.Again != 0 {
				t.Fatalf("%+v; want the refusal, and nothing to wait for", outcome)
			}
			<-time.After(time.Hour)
		}
		if len(p.asked) != 1 {
			t.Errorf("asked %d times, want once", len(p.asked))
		}
		pod.Annotations[ownKey] = "rdt=bronze"
		if f.Follow(t.Context(), pod, offered(), has); len(p.asked) != 2 {
			t.Errorf("asked %d times after the annotations changed, want again", len(p.asked))
		}
		<-time.After(5 * time.Second)
		anew := offered()
		anew.Config.Hash = "two"
		if f.Follow(t.Context(), pod, anew, has); len(p.asked) != 3 {
			t.Errorf("asked %d times after other class files came, want again", len(p.asked))
		}
	})
}

func TestAChangeByHandIsNotFoughtOver(t *testing.T) {
	p := &plugin{}
	f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=gold"})
	f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate)))
	if len(p.asked) != 0 {
		t.Fatalf("asked for %v; want a change by hand left", p.asked)
	}
	pod.Annotations[ownKey] = "rdt=bronze"
	f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate)))
	if len(p.asked) != 1 || p.asked[0].GetQosResources()[0].GetClass() != "bronze" || p.asked[0].GetPodUid() != "uid-web" {
		t.Errorf("asked for %v; want the newer annotation followed", p.asked)
	}
}

func TestAChangeByHandEndsTheTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{answer: status.Error(codes.ResourceExhausted, "full")}
		f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=silver"})
		outcome := f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
		<-time.After(outcome.Again)
		outcome = f.Follow(t.Context(), pod, offered(), podOf(in("bronze", fromUpdate)))
		if len(p.asked) != 1 || len(outcome.Refused) > 0 || outcome.Again != 0 {
			t.Errorf("asked %d times, outcome %+v; want whoever came later to have it", len(p.asked), outcome)
		}
	})
}

func TestAPluginThatIsAwayIsNoRefusal(t *testing.T) {
	p := &plugin{answer: status.Error(codes.Unavailable, "no")}
	outcome := NewFollower(p.update).Follow(t.Context(), webPod(map[string]string{ownKey: "rdt=silver"}), offered(), podOf(in("gold", fromContainer)))
	if len(p.asked) != 1 || len(outcome.Refused) > 0 || outcome.Again == 0 {
		t.Errorf("asked %d times, outcome %+v; want it tried again without blame", len(p.asked), outcome)
	}
}

func TestAContainerThatDoesNotRunIsLeft(t *testing.T) {
	p := &plugin{}
	pod := webPod(map[string]string{ownKey: "rdt=silver"})
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{}
	NewFollower(p.update).Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	if len(p.asked) > 0 {
		t.Errorf("asked for %v before the container runs", p.asked)
	}
}

func TestAStaticPodIsItsFile(t *testing.T) {
	p := &plugin{}
	pod := webPod(map[string]string{ownKey: "rdt=silver", corev1.MirrorPodAnnotationKey: "hash"})
	NewFollower(p.update).Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	if len(p.asked) > 0 || UID(pod) != "hash" {
		t.Errorf("asked for %v, known as %s; want a mirror pod left, and known by the UID of the node", p.asked, UID(pod))
	}
}

func TestARestartedContainerIsBroughtAlong(t *testing.T) {
	p := &plugin{}
	f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=gold"})
	f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	pod.Annotations[ownKey] = "rdt=silver"
	f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	// It has the annotations of its sandbox, which are those of before.
	restarted := in("gold", fromContainer)
	restarted.Id = "id-again"
	pod.Status.ContainerStatuses[0].ContainerID = "containerd://id-again"
	f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate), restarted))
	if len(p.asked) != 2 || p.asked[1].GetQosResources()[0].GetClass() != "silver" {
		t.Errorf("asked for %v; want silver for the container and for the one after it", p.asked)
	}
}

func TestAnnotationsThatChangeAllTheTimeAreFollowedSlowly(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		most   int
	}{
		"when it is given what it asks for": {nil, 13},
		"when it asks for nonsense":         {status.Error(codes.InvalidArgument, "no"), 13},
		"when there is no room":             {status.Error(codes.ResourceExhausted, "full"), 5},
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
				if len(p.asked) < 2 || len(p.asked) > c.most {
					t.Errorf("asked %d times in a minute, want %d at most", len(p.asked), c.most)
				}
				last := "rdt=silver"
				pod.Annotations[ownKey] = last
				if outcome := f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer))); outcome.Again > 0 {
					<-time.After(outcome.Again)
					f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
				}
				if got := p.asked[len(p.asked)-1].GetQosResources()[0].GetClass(); got != "silver" {
					t.Errorf("asked for %s last, want what the annotations ask for in the end", got)
				}
			})
		})
	}
}

func TestAnAnnotationThatAsksForWhatThereIsEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plugin{answer: status.Error(codes.ResourceExhausted, "full")}
		f, pod, has := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=silver"}), podOf(in("gold", fromContainer))
		f.Follow(t.Context(), pod, offered(), has)
		pod.Annotations[ownKey] = "rdt=gold"
		if outcome := f.Follow(t.Context(), pod, offered(), has); len(outcome.Refused) > 0 || outcome.Again != 0 || len(p.asked) != 1 {
			t.Errorf("asked %d times, outcome %+v; want nothing left to do", len(p.asked), outcome)
		}
	})
}

func TestAnAnnotationOfAnotherContainerIsNoChange(t *testing.T) {
	p := &plugin{}
	f, pod := NewFollower(p.update), webPod(map[string]string{ownKey: "rdt=gold"})
	f.Follow(t.Context(), pod, offered(), podOf(in("gold", fromContainer)))
	for _, key := range []string{"container.qos.noderesource.dev/other", "rdt.resources.kubernetes.io/container.other", "rdt.resources.beta.kubernetes.io/container.other"} {
		pod.Annotations[key] = "silver"
		f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate)))
	}
	if len(p.asked) > 0 {
		t.Errorf("asked for %v; want a change by hand left while nothing of the container changes", p.asked)
	}
	pod.Annotations[podKey] = "vendor.example/network=fast"
	if f.Follow(t.Context(), pod, offered(), podOf(in("silver", fromUpdate))); len(p.asked) != 1 {
		t.Errorf("asked %d times after an annotation of all containers came, want once", len(p.asked))
	}
}
