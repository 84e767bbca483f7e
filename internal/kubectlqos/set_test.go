// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/qos-nri/qos-nri-plugin/test/must"
)

const ownKey = "container.qos.noderesource.dev/main"

// goldPod returns a running pod that requests the class gold by annotation and has this class.
func goldPod() testPod {
	return aPod("p").on("n1").asks("rdt=gold").running().reported(corev1.ConditionTrue, "Assigned", "main: k8s.io/rdt gold (container)", "12:55:00")
}

// setRig has a pod p on n1, and records the patches of pods.
type setRig struct {
	*rig
	patches []clienttesting.PatchActionImpl
}

func newSetRig(t *testing.T, pod testPod) *setRig {
	t.Helper()
	r := &setRig{rig: newRig(t, "plain.yaml")}
	r.updateNode(t, "n1", func(object map[string]any) { // synctest's clock begins in the year 2000, before these times
		delete(object["metadata"].(map[string]any), "managedFields")
	})
	r.put(t, pod.Pod)
	r.core.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.patches = append(r.patches, action.(clienttesting.PatchActionImpl))
		return false, nil, nil
	})
	return r
}

// refusesAfter makes the node refuse a change of the container main, some time after the annotations of pod p have changed.
func (r *setRig) refusesAfter(t *testing.T, wait time.Duration, message string) {
	r.afterPatch(wait, func() { r.refuses(t, "main", "ChangeRefused", message) })
}

// assignsAfter makes the node report new classes of k8s.io/rdt for containers, some time after the annotations of pod p
// have changed. `pairs` has the form that holds describes.
func (r *setRig) assignsAfter(t *testing.T, wait time.Duration, pairs string) {
	r.afterPatch(wait, func() { r.holds(t, pairs) })
}

func (r *setRig) afterPatch(wait time.Duration, do func()) {
	r.core.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		time.AfterFunc(wait, do)
		return false, nil, nil
	})
}

// notReady makes n1 report that its plugin is not ready.
func notReady(t *testing.T, r *rig) {
	t.Helper()
	r.updateStatus(t, "n1", func(status map[string]any) { status["conditions"].([]any)[0].(map[string]any)["status"] = "False" })
}

func (r *setRig) annotation(t *testing.T, key string) string {
	t.Helper()
	pod := must.Get(r.core.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}))(t)
	return pod.Annotations[key]
}

// addDisk adds the resource vendor.example/disk of pod scope to n1, with the class fast.
func addDisk(t *testing.T, r *rig) {
	t.Helper()
	r.updateStatus(t, "n1", func(status map[string]any) {
		status["qosResources"].(map[string]any)["podQOSResources"] = []any{map[string]any{
			"name": "vendor.example/disk", "mutable": true, "classes": []any{map[string]any{"name": "fast", "inUse": int64(0)}},
		}}
	})
}

func TestSetChangesTheAnnotationAndReportsTheResult(t *testing.T) {
	const full = `class "silver" of k8s.io/rdt is full: 1 of 1 in use; available: bronze`
	for _, c := range []struct {
		name string
		pod  testPod
		args []string
		shim func(t *testing.T, r *setRig)
		want answer
		// annotation is the value of the annotation at the end of the test
		annotation string
	}{
		{"another class", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.assignsAfter(t, 2*time.Second, "main=silver/update")
		}, answer{Out: "pod/p container main: k8s.io/rdt gold -> silver\n"}, "rdt=silver"},
		{"another class, reported by the node alone", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.afterPatch(6*time.Second, func() {
				r.updatePod(t, "p", func(pod *corev1.Pod) { pod.Status.Conditions = nil })
				r.holds(t, "main=silver")
			})
		}, answer{Errors: waiting, Out: "pod/p container main: k8s.io/rdt gold -> silver\n"}, "rdt=silver"},
		{"another class, reported by the pod's condition alone", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.afterPatch(time.Second, func() {
				r.updatePod(t, "p", func(pod *corev1.Pod) {
					pod.Status.Conditions[0].Message = "main: k8s.io/rdt silver (update)"
					pod.ManagedFields[0].Time.Time = r.now
				})
			})
		}, answer{Out: "pod/p container main: k8s.io/rdt gold -> silver\n"}, "rdt=silver"},
		{"the class of the pod itself", goldPod(), []string{"p", "--pod", "vendor.example/disk=fast"}, func(t *testing.T, r *setRig) {
			addDisk(t, r.rig)
			r.afterPatch(time.Second, func() {
				r.updateResource(t, "n1", "podQOSResources", func(resource map[string]any) {
					resource["classes"].([]any)[0].(map[string]any)["holders"] = []any{map[string]any{"namespace": "default", "pod": "p", "source": "update"}}
				})
			})
		}, answer{Out: "pod/p: vendor.example/disk <system default> -> fast\n"}, "rdt=gold"},
		{"the only container needs no name", goldPod(), []string{"p", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.assignsAfter(t, time.Second, "main=silver/update")
		}, answer{Out: "pod/p container main: k8s.io/rdt gold -> silver\n"}, "rdt=silver"},
		{"the default class, after the request is removed", goldPod(), []string{"p", "-c", "main", "rdt-"}, func(t *testing.T, r *setRig) {
			r.assignsAfter(t, time.Second, "main=bronze/update")
		}, answer{Out: "pod/p container main: k8s.io/rdt gold -> bronze\n"}, ""},
		{"the system default", goldPod(), []string{"p", "-c", "main", "rdt="}, func(t *testing.T, r *setRig) {
			r.assignsAfter(t, time.Second, "")
		}, answer{Out: "pod/p container main: k8s.io/rdt gold -> <system default>\n"}, "rdt="},
		{"the class that the container has", goldPod(), []string{"p", "-c", "main", "k8s.io/rdt=gold"}, nil,
			answer{Out: "pod/p container main: k8s.io/rdt stays gold\n"}, "k8s.io/rdt=gold"},
		{"the class that the container has, without a free slot and on a node that does not follow annotations", goldPod(), []string{"p", "rdt=gold"}, func(t *testing.T, r *setRig) {
			r.updateRDT(t, "gold", func(of map[string]any) { of["inUse"] = int64(2) })
			r.updateStatus(t, "n1", func(status map[string]any) { status["followsAnnotations"] = false })
		}, answer{Out: "pod/p container main: k8s.io/rdt stays gold\n"}, "rdt=gold"},
		{"a class that a policy refuses", goldPod(), []string{"p", "rdt=silver"}, func(_ *testing.T, r *setRig) {
			r.core.PrependReactor("patch", "pods", failing(apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("no gold for you"))))
		}, answer{Code: 1, Errors: "Error: a permission is missing: pods \"p\" is forbidden: no gold for you; list your permissions with: kubectl auth can-i --list\n"}, "rdt=gold"},
		{"a change that conflicts with another client at each attempt", goldPod(), []string{"p", "rdt=silver"}, func(_ *testing.T, r *setRig) {
			r.core.PrependReactor("patch", "pods", failing(apierrors.NewConflict(corev1.Resource("pods"), "p", nil)))
		}, answer{Code: 1, Errors: "Error: pod p was changed by another client at every attempt; try again\n"}, "rdt=gold"},
		{"a class that the node refuses", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.refusesAfter(t, time.Second, full)
		}, answer{Code: 1, Errors: `Error: pod/p container main: refused: class "silver" of k8s.io/rdt is full: 1 of 1 in use; available: bronze; the annotation container.qos.noderesource.dev/main is "rdt=gold" again` + "\n"}, "rdt=gold"},
		{"an earlier refusal is reported at once", goldPod().asks("rdt=silver"), []string{"p", "-c", "main", "rdt=silver", "--timeout", "1ns"},
			func(t *testing.T, r *setRig) { r.refuses(t, "main", "ChangeRefused", full) },
			answer{Code: 1, Errors: `Error: pod/p container main: refused: class "silver" of k8s.io/rdt is full: 1 of 1 in use; available: bronze; the annotation container.qos.noderesource.dev/main requested the change before this command, and still does, so the node makes the change as soon as possible` + "\n"}, "rdt=silver"},
		{"an old refusal is not taken for a new one", goldPod().asks("rdt=silver"),
			[]string{"p", "-c", "main", "rdt=bronze"}, func(t *testing.T, r *setRig) {
				r.refuses(t, "main", "ChangeRefused", full)
				r.assignsAfter(t, 3*time.Second, "main=bronze/update")
			}, answer{Out: "pod/p container main: k8s.io/rdt gold -> bronze\n"}, "rdt=bronze"},
		{"a refusal of another container is ignored", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.afterPatch(time.Second, func() { r.refuses(t, "side", "ChangeRefused", full) })
			r.assignsAfter(t, 3*time.Second, "main=silver/update")
		}, answer{Out: "pod/p container main: k8s.io/rdt gold -> silver\n"}, "rdt=silver"},
		{"a refusal of the creation is ignored", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.afterPatch(time.Second, func() { r.refuses(t, "main", "ClassFull", full) })
			r.assignsAfter(t, 3*time.Second, "main=silver/update")
		}, answer{Out: "pod/p container main: k8s.io/rdt gold -> silver\n"}, "rdt=silver"},
		{"the shim does nothing", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, nil,
			answer{Code: 1, Errors: waiting + `Error: pod/p container main: no change was reported within 30s; see the log of qos-kubelet-shim on n1; the annotation container.qos.noderesource.dev/main is "rdt=gold" again` + "\n"}, "rdt=gold"},
		{"the shim does nothing, and there was no annotation", aPod("p").on("n1").running(), []string{"p", "-c", "main", "rdt=silver"}, nil,
			answer{Code: 1, Errors: waiting + `Error: pod/p container main: no change was reported within 30s; see the log of qos-kubelet-shim on n1; the annotation container.qos.noderesource.dev/main is removed again` + "\n"}, ""},
		{"the shim does nothing, and another client sets another class", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.afterPatch(time.Second, func() {
				r.updatePod(t, "p", func(pod *corev1.Pod) { pod.Annotations[ownKey] = "rdt=bronze" })
			})
		}, answer{Code: 1, Errors: waiting + `Error: pod/p container main: no change was reported within 30s; see the log of qos-kubelet-shim on n1; the annotation container.qos.noderesource.dev/main was changed by another client, and is left at "rdt=bronze"` + "\n"}, "rdt=bronze"},
		{"the shim does nothing, and the API server refuses to restore the annotation", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(_ *testing.T, r *setRig) {
			start := time.Now()
			r.core.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return time.Since(start) > 10*time.Second, nil, errors.New("no etcd")
			})
		}, answer{Code: 1, Errors: waiting + `Error: pod/p container main: no change was reported within 30s; see the log of qos-kubelet-shim on n1; the annotation container.qos.noderesource.dev/main could not be restored, and still requests the change: no etcd` + "\n"}, "rdt=silver"},
		{"the plugin stops", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.afterPatch(time.Second, func() { notReady(t, r.rig) })
		}, answer{Code: 1, Errors: waiting + `Error: pod/p container main: no change was reported within 30s, because qos-nri-plugin of n1 has not been ready since 2026-05-01T12:00:00Z; the annotation container.qos.noderesource.dev/main is "rdt=gold" again` + "\n"}, "rdt=gold"},
		{"the pod ends", goldPod(), []string{"p", "-c", "main", "rdt=silver"}, func(t *testing.T, r *setRig) {
			r.afterPatch(time.Second, func() {
				r.updatePod(t, "p", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
			})
		}, answer{Code: 1, Errors: "Error: pod/p: the pod ended before its class was changed\n"}, "rdt=silver"},
		{"without waiting", goldPod(), []string{"p", "-c", "main", "rdt=silver", "--wait=false"}, nil,
			answer{Out: `pod/p container main: annotation container.qos.noderesource.dev/main: "rdt=gold" -> "rdt=silver"` + "\n"}, "rdt=silver"},
		{"a dry run in the client", goldPod(), []string{"p", "-c", "main", "rdt=silver", "--dry-run"}, nil,
			answer{Out: `pod/p container main: annotation container.qos.noderesource.dev/main: "rdt=gold" -> "rdt=silver" (dry run)` + "\n"}, "rdt=gold"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSetRig(t, testPod{c.pod.DeepCopy()})
				r.holds(t, "main=gold")
				if c.shim != nil {
					c.shim(t, r)
				}
				wantAnswer(t, c.want, r.run(t, append([]string{"set"}, c.args...)...))
				if got := r.annotation(t, ownKey); got != c.annotation {
					t.Errorf("the annotation is %q in the end, want %q", got, c.annotation)
				}
			})
		})
	}
}

func TestSetForThePodDoesNotChangeContainersWithTheirOwnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSetRig(t, goldPod().with("side").running())
		r.holds(t, "main=gold,side=bronze/default")
		r.assignsAfter(t, time.Second, "main=gold,side=silver/update")
		wantAnswer(t, answer{Out: "pod/p container side: k8s.io/rdt bronze -> silver\n"}, r.run(t, "set", "p", "--pod", "rdt=silver"))
		if got := r.annotation(t, podKey); got != "rdt=silver" {
			t.Errorf("the pod's annotation is %q", got)
		}
	})
}

func TestSetWritesNothingIfTheChangeIsImpossible(t *testing.T) {
	status := func(key string, value any) func(t *testing.T, r *rig) {
		return func(t *testing.T, r *rig) {
			r.updateStatus(t, "n1", func(status map[string]any) { status[key] = value })
		}
	}

	for _, c := range []struct {
		name string
		pod  testPod
		node func(t *testing.T, r *rig)
		args []string
		code int
		want string
	}{
		{"a change on a node that does not follow annotations", goldPod(), status("followsAnnotations", false), []string{"p", "rdt=silver"}, 1,
			`pod/p cannot be changed by annotation, because qos-kubelet-shim of n1 runs without --follow-annotations; add this flag as deploy/kubernetes-follow-annotations and the value followAnnotations of the Helm chart do, or run "qos-nri-plugin update" on the node`},
		{"a change while the plugin does not run", goldPod(), notReady, []string{"p", "rdt=silver"}, 1,
			"pod/p cannot be changed, because qos-nri-plugin of n1 has not been ready since 2026-05-01T12:00:00Z; see kubectl qos nodes n1"},
		{"a change on a node that does not report any more", goldPod(), status("lastHeartbeatTime", "2026-05-01T10:00:00Z"), []string{"p", "rdt=silver"}, 1,
			"pod/p cannot be changed, because the last report of qos-kubelet-shim on n1 was 3h ago; see kubectl qos nodes n1"},
		{"a pod that does not exist", goldPod(), nil, []string{"q", "rdt=gold"}, 1, `there is no pod "q" in namespace "default"; name another namespace with -n`},
		{"a container that does not exist", goldPod(), nil, []string{"p", "-c", "x", "rdt=gold"}, 1, `pod p has no container "x"; its containers: main`},
		{"no name of a container, although there are several", goldPod().with("side").running(), nil, []string{"p", "rdt=gold"}, 1, "pod p has several containers; name one with -c, or all with --pod: main, side"},
		{"a container that does not run", aPod("p").on("n1").waiting("CrashLoopBackOff", ""), nil, []string{"p", "rdt=gold"}, 1, "container main of pod p does not run (CrashLoopBackOff); only classes of running containers can be changed"},
		{"a pod without a node", aPod("p"), nil, []string{"p", "rdt=gold"}, 1, "pod p is not scheduled to a node yet; change the requests in the object that creates the pod"},
		{"a pod that has ended", goldPod().ended(corev1.PodSucceeded, "", ""), nil, []string{"p", "rdt=gold"}, 1, "pod p has ended or is being deleted; there is nothing to change"},
		{"a static pod", goldPod().annotated(corev1.MirrorPodAnnotationKey, "x"), nil, []string{"p", "rdt=gold"}, 1, "pod p is a static pod; change the requests in its manifest file on node n1"},
		{"a node without NodeQOSResources", goldPod().on("n9"), nil, []string{"p", "rdt=gold"}, 1, `node "n9" of pod p has no NodeQOSResources; check that qos-kubelet-shim runs there`},
		{"an unknown class", goldPod(), nil, []string{"p", "rdt=glod"}, 1, `pod/p container main: class "glod" of k8s.io/rdt does not exist on n1; available: gold, silver, bronze, old (did you mean gold?)`},
		{"an unknown resource", goldPod(), nil, []string{"p", "rtd=gold"}, 1, `pod/p container main: resource "rtd" does not exist on n1; available: k8s.io/rdt`},
		{"a resource of pods for a container", goldPod(), addDisk, []string{"p", "vendor.example/disk=fast"}, 1, "pod/p container main: vendor.example/disk is for pods, not for containers; request it in annotation qos.noderesource.dev/pod"},
		{"an unknown class of pods", goldPod(), addDisk, []string{"p", "--pod", "vendor.example/disk=faster"}, 1, `pod/p class "faster" of vendor.example/disk does not exist on n1; available: fast (did you mean fast?)`},
		{"a request that contradicts the limits", aPod("p").on("n1").limited(gold).running(), nil, []string{"p", "rdt=silver"}, 1,
			`pod/p container main: class "silver" of k8s.io/rdt contradicts the allocated class "gold"; request the same class in the annotation and in resources.limits; limits of a running pod cannot be changed, so recreate the pod`},
		{"a request of the pod, although all containers have their own", goldPod(), nil, []string{"p", "--pod", "rdt=silver"}, 1, "the pod's request changes nothing, because its containers have their own requests: main (by container.qos.noderesource.dev/main); choose a container with -c"},
		{"an annotation that cannot be read", goldPod().asks("gold"), nil, []string{"p", "rdt=silver"}, 1, `annotation container.qos.noderesource.dev/main of pod p: the request has "gold", which is not of the form resource=class; repair it with kubectl annotate --overwrite`},
		{"no pair", goldPod(), nil, []string{"p"}, 2, `usage: POD and at least one RESOURCE=CLASS or RESOURCE- are required; see "kubectl qos set --help"`},
		{"a request that is no pair", goldPod(), nil, []string{"p", "gold"}, 2, `usage: the request has "gold", which is not of the form resource=class; write a request like rdt=silver, or rdt- to remove the request; see "kubectl qos set --help"`},
		{"an empty word", goldPod(), nil, []string{"p", "rdt=gold,"}, 2, `usage: "" names no resource; write a request like rdt=silver, or rdt- to remove the request; see "kubectl qos set --help"`},
		{"a resource twice", goldPod(), nil, []string{"p", "rdt=gold", "k8s.io/rdt-"}, 2, `usage: k8s.io/rdt is named twice; write each resource once; see "kubectl qos set --help"`},
		{"container and pod", goldPod(), nil, []string{"p", "-c", "main", "--pod", "rdt=gold"}, 2, `usage: --pod and --container cannot be used together; see "kubectl qos set --help"`},
		{"an unknown value of --dry-run", goldPod(), nil, []string{"p", "--dry-run=all", "rdt=gold"}, 2, `usage: --dry-run "all" is not one of none, client, server; see "kubectl qos set --help"`},
		{"a timeout of 0", goldPod(), nil, []string{"p", "--timeout=0s", "rdt=gold"}, 2, `usage: --timeout 0s must be positive; to return without waiting, use --wait=false; see "kubectl qos set --help"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newSetRig(t, c.pod)
			if c.node != nil {
				c.node(t, r.rig)
			}
			wantAnswer(t, answer{Code: c.code, Errors: "Error: " + c.want + "\n"}, r.run(t, append([]string{"set"}, c.args...)...))
			if len(r.patches) > 0 {
				t.Errorf("the command wrote the patch %s, want none", r.patches[0].Patch)
			}
		})
	}
}

func TestSetKeepsAChangeByAnotherClientAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSetRig(t, goldPod())
		conflicts := 0
		r.core.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if conflicts++; conflicts > 1 {
				return false, nil, nil
			}
			r.updatePod(t, "p", func(pod *corev1.Pod) {
				pod.ResourceVersion, pod.Annotations[ownKey] = "2", "blockio=,rdt=gold"
			})
			return true, nil, apierrors.NewConflict(corev1.Resource("pods"), "p", nil)
		})

		r.updateStatus(t, "n1", func(status map[string]any) { // the request of the other client must name a known resource
			status["unavailableResources"] = []any{map[string]any{"name": "k8s.io/blockio", "scope": "Container", "message": "none"}}
		})
		got := r.run(t, "set", "p", "rdt=silver", "--wait=false")
		if annotation := r.annotation(t, ownKey); got.Code != 0 || annotation != "blockio=,rdt=silver" {
			t.Errorf("answer %+v, annotation %q; want the change of the other client kept", got, annotation)
		}

		var patch struct{ Metadata map[string]any }
		must.Do(t, json.Unmarshal(r.patches[len(r.patches)-1].Patch, &patch))
		want := map[string]any{"uid": "uid-p", "resourceVersion": "2", "annotations": map[string]any{ownKey: "blockio=,rdt=silver"}}
		if diff := cmp.Diff(want, patch.Metadata); diff != "" {
			t.Errorf("the last patch differs (-want +got):\n%s", diff)
		}
	})
}

func TestSetPassesADryRunOnToTheServer(t *testing.T) {
	r := newSetRig(t, goldPod())
	got := r.run(t, "set", "p", "rdt=silver", "--dry-run=server")
	if !strings.HasSuffix(got.Out, `"rdt=silver" (server dry run)`+"\n") || len(r.patches) != 1 {
		t.Fatalf("answer %+v after %d patches", got, len(r.patches))
	}
	if options := r.patches[0].GetPatchOptions(); len(options.DryRun) != 1 || options.DryRun[0] != metav1.DryRunAll {
		t.Errorf("the patch has the options %+v, want a dry run", options)
	}
}

func TestAChangeKeepsTheRequestsForOtherResources(t *testing.T) {
	for _, c := range []struct{ name, had, change, want string }{
		{"a request is added to an empty annotation", "", "rdt=gold", "rdt=gold"},
		{"a request is added at the end", "blockio=slow", "rdt=gold", "blockio=slow,rdt=gold"},
		{"a request is replaced in its place", "rdt=gold, blockio=slow", "rdt=silver", "rdt=silver,blockio=slow"},
		{"a request with the full name of the resource is replaced", "blockio=slow,k8s.io/rdt=gold", "rdt=silver", "blockio=slow,rdt=silver"},
		{"a repeated request is replaced by one", "rdt=gold,k8s.io/rdt=gold", "rdt=silver", "rdt=silver"},
		{"a request is removed", "rdt=gold,blockio=slow", "rdt-", "blockio=slow"},
		{"the only request is removed", "rdt=gold", "k8s.io/rdt-", ""},
		{"one request is replaced and one is added", "rdt=gold,blockio=slow", "blockio=fast,rdt=", "rdt=,blockio=fast"},
		{"one request is removed and one is added", "rdt=gold", "rdt-,blockio=slow", "blockio=slow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := must.Get(parseChange([]string{c.change}))(t)
			got, err := change.merge(c.had)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
			if again, err := change.merge(got); err != nil || again != got {
				t.Errorf("a second merge gives %q, %v; want %q again", again, err, got)
			}
		})
	}
}
