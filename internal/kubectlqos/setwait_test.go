// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// cutsOff makes get requests for a resource fail, beginning after the given duration. Each request fails after a
// second.
func (r *setRig) cutsOff(fake *clienttesting.Fake, resource string, after time.Duration) {
	start := time.Now()
	fake.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		if time.Since(start) < after {
			return false, nil, nil
		}
		<-time.After(time.Second)
		return true, nil, errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	})
}

// waiting is what the command reports while it waits.
const waiting = "Waiting up to 30s for node n1 to change the class\n"

// TestSetReportsTheLastKnownResultAtItsTimeout has a timeout of 30 s. From 29.2 s on, each read of the pod, or of its node, takes a second
// before it fails, so the timeout passes during a read. Then the command restores the annotation, for which it must read the pod again. If
// the last read that ended in time has failed, or none has ended in time, the result is unknown, and the annotation stays.
func TestSetReportsTheLastKnownResultAtItsTimeout(t *testing.T) {
	const set = `Error: pod/p container main: annotation container.qos.noderesource.dev/main: "rdt=gold" -> "rdt=silver"; `
	const nothing = waiting + `Error: pod/p container main: no change was reported within 30s; see the log of qos-kubelet-shim on n1; the annotation container.qos.noderesource.dev/main `
	for _, c := range []struct {
		name string
		cut  func(r *setRig)
		want string
	}{
		{"while the command reads the pod", func(r *setRig) { r.cutsOff(&r.core.Fake, "pods", 29200*time.Millisecond) },
			nothing + "could not be restored, and still requests the change: client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline\n"},
		{"while the command reads the node", func(r *setRig) { r.cutsOff(&r.objects.Fake, "nodeqosresources", 29200*time.Millisecond) }, nothing + `is "rdt=gold" again` + "\n"},
		// the first read after the change takes the whole timeout
		{"before the pod was read once", func(r *setRig) {
			r.core.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				r.core.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					<-time.After(30 * time.Second)
					return true, nil, errors.New("context deadline exceeded")
				})
				return false, nil, nil
			})
		}, set + "the result is unknown: the API server gave no answer within 30s\n"},
		{"after a failed read", func(r *setRig) {
			r.cutsOff(&r.core.Fake, "pods", 29200*time.Millisecond)
			start := time.Now()
			r.core.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				since := time.Since(start)
				return since > 20*time.Second && since < 29200*time.Millisecond, nil, errors.New("no etcd")
			})
		}, waiting + set + "the result is unknown: no etcd\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSetRig(t, testPod{goldPod().DeepCopy()})
				c.cut(r)
				wantAnswer(t, answer{Code: 1, Errors: c.want}, r.run(t, "set", "p", "-c", "main", "rdt=silver"))
			})
		})
	}
}

func TestSetExplainsWhyAnEphemeralContainerIsRefused(t *testing.T) {
	r := newRig(t, "nodes.yaml", "pods.yaml")
	const web = `
apiVersion: v1
kind: Pod
metadata: {name: debugged, uid: u}
spec:
  nodeName: node-1
  containers: [{name: main}]
  ephemeralContainers: [{name: debugger}, {name: ended}]
status:
  phase: Running
  startTime: "2026-05-01T12:30:00Z"
  containerStatuses: [{name: main, containerID: "c://1", state: {running: {startedAt: "2026-05-01T12:30:00Z"}}}]
  ephemeralContainerStatuses:
  - {name: debugger, containerID: "c://2", state: {running: {startedAt: "2026-05-01T12:31:00Z"}}}
  - {name: ended, containerID: "c://3", state: {terminated: {exitCode: 0}}}
`

	r.add(t, web)
	for _, name := range []string{"debugger", "ended"} {
		wantAnswer(t, answer{Code: 1, Errors: "Error: container " + name + " of pod debugged is an ephemeral container, which cannot request classes; choose an init or ordinary container: main\n"}, r.run(t, "set", "debugged", "-c", name, "rdt=silver", "--dry-run"))
	}

	t.Run("and the only other container needs no name", func(t *testing.T) {
		got := r.run(t, "set", "debugged", "rdt=silver", "--dry-run")
		if got.Code != 0 || !strings.HasPrefix(got.Out, "pod/debugged container main: ") {
			t.Errorf("answer is %+v", got)
		}
	})
	t.Run("and shells do not complete its name", func(t *testing.T) {
		if got := r.run(t, "__completeNoDesc", "set", "debugged", "-c", ""); got.Out != "main\n:4\n" {
			t.Errorf("completes %q", got.Out)
		}
	})
}
