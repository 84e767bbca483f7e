// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// resizeRig has the StatefulSet db with two replicas, whose volumes have 10 GiB.
type resizeRig struct {
	*rig
	polls     int
	deletions []metav1.DeleteOptions // of StatefulSets, in rigs of newRecreateRig
}

func newResizeRig(t *testing.T, templates ...string) *resizeRig {
	t.Helper()
	r := &resizeRig{rig: newRig(t)}
	r.objects.PrependReactor("create", "statefulsetvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).SetGeneration(1)
		return false, nil, nil
	})
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "first", ResourceVersion: "1"}}
	set.Annotations = map[string]string{"storage.qos.noderesource.dev/data": "15Gi", "a": "b"}
	set.Spec.Replicas = new(int32(2))
	for _, name := range templates {
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		claim.Spec.Resources.Requests = sized("10Gi")
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, claim)
		for i := range 2 {
			claim := claim.DeepCopy()
			claim.Namespace, claim.Name, claim.Status.Capacity = "default", fmt.Sprintf("%s-db-%d", name, i), sized("10Gi")
			r.put(t, claim)
		}
	}
	r.put(t, set, &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}})
	return r
}

func sized(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// during calls a function at each pause of the command, with the number of the pause. The clock goes on by a second.
func (r *resizeRig) during(step func(pause int)) {
	r.pause = func(context.Context, time.Duration) {
		r.polls++
		r.now = r.now.Add(time.Second)
		step(r.polls)
	}
}

// grow gives the volume of a replica a size, as driver and kubelet do.
func (r *resizeRig) grow(t *testing.T, claim, size, capacity string) {
	t.Helper()
	claims := r.core.CoreV1().PersistentVolumeClaims("default")
	c := must.Get(claims.Get(t.Context(), claim, metav1.GetOptions{}))(t)
	c.Spec.Resources.Requests, c.Status.Capacity = sized(size), sized(capacity)
	must.Get(claims.Update(t.Context(), c, metav1.UpdateOptions{}))(t)
}

// reports writes the status of the object.
func (r *resizeRig) reports(t *testing.T, ready, stalled, reason, message string) {
	t.Helper()
	object := r.object(t)
	object.Object["status"] = map[string]any{
		"observedGeneration": object.GetGeneration(), "conditions": []any{
			map[string]any{"type": "Ready", "status": ready, "reason": reason, "message": message},
			map[string]any{"type": "Stalled", "status": stalled, "reason": reason, "message": message},
		},
	}
	must.Do(t, r.objects.Tracker().Update(volumesKind(), object, "default"))
}

func (r *resizeRig) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object := must.Get(r.objects.Tracker().Get(volumesKind(), "default", "db"))(t)
	return object.(*unstructured.Unstructured).DeepCopy()
}

// succeeds makes the controller and the driver expand one volume after the other while the command waits.
func (r *resizeRig) succeeds(t *testing.T) {
	r.during(func(pause int) {
		switch pause {
		case 1:
			r.grow(t, "data-db-0", "20Gi", "10Gi")
			r.reports(t, "False", "False", "Waiting", "the volumes of 0 of 2 replicas are ready; claim data-db-0: the driver has to expand the volume")
		case 2:
			r.grow(t, "data-db-0", "20Gi", "20Gi")
			r.grow(t, "data-db-1", "20Gi", "10Gi")
			r.reports(t, "False", "False", "Waiting", "the volumes of 1 of 2 replicas are ready; claim data-db-1: the driver has to expand the volume")
		case 3:
			r.grow(t, "data-db-1", "20Gi", "20Gi")
			r.reports(t, "True", "False", "AllReplicasReady", "the volumes of all replicas are ready (2)")
		}
	})
}

func TestResizeWaitsForAllReplicas(t *testing.T) {
	r := newResizeRig(t, "data")
	r.succeeds(t)
	wantAnswer(t, answer{Out: `
statefulset/db template data: storage 20Gi for 2 replicas
replica db-0: requested; storage 10Gi
replica db-1: waits; storage 10Gi
replica db-0: ready; storage 20Gi
replica db-1: requested; storage 10Gi
statefulset/db: the volumes of 1 of 2 replicas are ready; claim data-db-1: the driver has to expand the volume
replica db-1: ready; storage 20Gi
statefulset/db: the volumes of all replicas are ready (2)
`}, r.run(t, "resize", "sts/db", "--storage=20Gi"))
	if diff := cmp.Diff(map[string]any{"volumeClaimTemplates": []any{map[string]any{"name": "data", "storage": "20Gi"}}}, r.object(t).Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestResizeKeepsOtherRequests(t *testing.T) {
	r := newResizeRig(t, "data", "log")
	for _, args := range [][]string{
		{"--template=data", "--storage=20Gi"}, {"--template=log", "--storage=5Gi", "--volume-attributes-class=silver"}, {"--template=log", "--volume-attributes-class=gold"},
	} {
		if got := r.run(t, append([]string{"resize", "db", "--wait=false"}, args...)...); got.Code != 0 || !strings.HasSuffix(got.Out, " requested\n") {
			t.Errorf("%v answers %+v", args, got)
		}
	}
	want := []any{
		map[string]any{"name": "data", "storage": "20Gi"}, map[string]any{"name": "log", "storage": "5Gi", "volumeAttributesClassName": "gold"},
	}
	got, _, err := unstructured.NestedSlice(r.object(t).Object, "spec", "volumeClaimTemplates")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v; templates (-want +got):\n%s", err, diff)
	}
}

func TestErrorsOfResizeAreOneLine(t *testing.T) {
	noKind := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", nodeqosv1alpha1.Resource("statefulsetvolumes"), "", "404 page not found", 0, true)
	for _, c := range []struct {
		name string
		args string
		api  error
		code int
		want string
	}{
		{"no StatefulSet", "cache --storage=1Gi", nil, 1, `there is no statefulset "cache" in namespace "default"; name another namespace with -n`},
		{"no template", "db --storage=1Gi", nil, 1, "statefulset db has several claim templates; name one with --template: data, log"},
		{"an unknown template", "db --storage=1Gi --template=lag", nil, 1, `statefulset db has no claim template "lag"; its templates: data, log`},
		{"nothing to do", "db", nil, 2, `--storage or --volume-attributes-class is required; see "kubectl qos resize --help"`},
		{"no size", "db --storage=much", nil, 2, `--storage "much" is no size; write, e.g., 20Gi; see "kubectl qos resize --help"`},
		{"an exponent", "db --storage=1e9", nil, 2, `--storage "1e9" is no size; write, e.g., 20Gi; see "kubectl qos resize --help"`},
		{"no argument", "--storage=1Gi", nil, 2, `one STATEFULSET is required; see "kubectl qos resize --help"`},
		{"another kind", "deploy/db --storage=1Gi", nil, 2, `"deploy/db" is not a statefulset; pass a statefulset as NAME or statefulset/NAME; see "kubectl qos resize --help"`},
		{"--recreate without waiting", "db --storage=1Gi --recreate --wait=false", nil, 2, `--recreate and --wait=false cannot be used together, because the volumes have to be changed first; see "kubectl qos resize --help"`},
		{"a timeout of 0", "db --storage=1Gi --timeout=0", nil, 2, `--timeout 0s must be positive; to return without waiting, use --wait=false; see "kubectl qos resize --help"`},
		{"an unknown value of --dry-run", "db --storage=1Gi --dry-run=some", nil, 2, `--dry-run "some" is not one of none, client, server; see "kubectl qos resize --help"`},
		{"the CRD is missing", "db --storage=1Gi --template=data", noKind, 1, "this cluster has no kind StatefulSetVolumes; install it with kubectl apply -k deploy/storage-statefulsets, or with statefulSetVolumes.enabled=true of the Helm chart"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newResizeRig(t, "data", "log")
			if c.api != nil {
				r.objects.PrependReactor("*", "statefulsetvolumes", failing(c.api))
			}
			prefix := map[int]string{1: "Error: ", 2: "Error: usage: "}[c.code]
			wantAnswer(t, answer{Code: c.code, Errors: prefix + c.want + "\n"}, r.run(t, append([]string{"resize"}, strings.Fields(c.args)...)...))
		})
	}
}

// TestResizeReportsAFailure has two cases: the controller reports a refused patch, and another client changes the request.
func TestResizeReportsAFailure(t *testing.T) {
	const waits = `
statefulset/db template data: storage 20Gi for 2 replicas
`
	r := newResizeRig(t, "data")
	r.during(func(int) { r.reports(t, "False", "True", "PatchRefused", "claim data-db-0: exceeded quota") })
	wantAnswer(t, answer{Code: 1, Out: waits + "replica db-0: waits; storage 10Gi\nreplica db-1: waits; storage 10Gi\n",
		Errors: "Error: statefulset/db template data: storage 20Gi; PatchRefused: claim data-db-0: exceeded quota; the request stays\n"},
		r.run(t, "resize", "db", "--storage=20Gi"))

	r = newResizeRig(t, "data")
	r.during(func(int) {
		object := r.object(t)
		object.SetGeneration(9) // another client changes the request
		must.Do(t, r.objects.Tracker().Update(volumesKind(), object, "default"))
	})
	wantAnswer(t, answer{Code: 1, Out: waits, Errors: "Error: statefulset/db template data: storage 20Gi was changed by another client meanwhile; see kubectl get statefulsetvolumes db\n"},
		r.run(t, "resize", "db", "--storage=20Gi"))
}

// newRecreateRig returns a rig whose volumes are expanded while the command waits. The API server answers the deletion of the StatefulSet with
// `failure`, and accepts dry runs of it. Temporary files are in a directory of their own.
func newRecreateRig(t *testing.T, failure error) *resizeRig {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	r := newResizeRig(t, "data")
	r.succeeds(t)
	r.core.PrependReactor("delete", "statefulsets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.DeleteActionImpl).DeleteOptions
		r.deletions = append(r.deletions, options)
		if len(options.DryRun) > 0 {
			return true, nil, nil
		}
		return failure != nil, nil, failure
	})
	return r
}

func (r *resizeRig) recreate(t *testing.T) answer {
	t.Helper()
	return r.run(t, "resize", "db", "--storage=20Gi", "--recreate")
}

func TestResizeRecreatesTheStatefulSet(t *testing.T) {
	r := newRecreateRig(t, nil)
	got := r.recreate(t)
	const plan = "then statefulset/db is deleted without its pods and claims, and created with the template data: storage 10Gi -> 20Gi, volume attributes class - -> -\n"
	if got.Code != 0 || !strings.Contains(got.Out, plan) || !strings.HasSuffix(got.Out, "statefulset/db replaced; its pods and claims stay\n") {
		t.Errorf("answer %+v", got)
	}
	if deletions := r.deletions; len(deletions) != 2 || len(deletions[0].DryRun) != 1 || *deletions[1].PropagationPolicy != metav1.DeletePropagationOrphan ||
		*deletions[1].Preconditions.UID != "first" || *deletions[1].Preconditions.ResourceVersion == "" {
		t.Errorf("deletions %+v", r.deletions)
	}

	set := must.Get(r.core.AppsV1().StatefulSets("default").Get(t.Context(), "db", metav1.GetOptions{}))(t)
	if size := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage(); size.String() != "20Gi" || set.UID != "" || *set.Spec.Replicas != 2 {
		t.Errorf("the new StatefulSet: %+v", set)
	}
	// the annotation that requested 15Gi for this template is not copied
	if diff := cmp.Diff(map[string]string{"a": "b"}, set.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestADryRunOfResizeShowsTheChange(t *testing.T) {
	for mode, suffix := range map[string]string{"client": " (dry run)", "server": " (server dry run)"} {
		r := newResizeRig(t, "data")
		if mode == "server" {
			r.core.PrependReactor("delete", "statefulsets", failing(nil)) // succeeds, and deletes nothing
			r.objects.PrependReactor("create", "statefulsetvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return true, action.(clienttesting.CreateAction).GetObject(), nil
			})
		}
		wantAnswer(t, answer{Out: `
statefulset/db template data: storage 20Gi, volume attributes class gold for 2 replicas` + suffix + `
then statefulset/db is deleted without its pods and claims, and created with the template data: storage 10Gi -> 20Gi, volume attributes class - -> gold` + suffix + `
`}, r.run(t, "resize", "db", "--storage=20Gi", "--volume-attributes-class=gold", "--recreate", "--dry-run="+mode))
		if _, err := r.objects.Tracker().Get(volumesKind(), "default", "db"); err == nil {
			t.Errorf("--dry-run=%s writes", mode)
		}
	}
}

// TestRecreateKeepsTheManifestIfTheStatefulSetCannotBeCreatedAgain lets the creation fail after the deletion.
func TestRecreateKeepsTheManifestIfTheStatefulSetCannotBeCreatedAgain(t *testing.T) {
	r := newRecreateRig(t, nil)
	r.core.PrependReactor("create", "statefulsets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		dry := len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) > 0
		return !dry, nil, apierrors.NewForbidden(appsv1.Resource("statefulsets"), "db", errors.New("no"))
	})
	got := r.recreate(t)
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "statefulset-db-*.yaml"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v; answer %+v", files, err, got)
	}
	if want := "Error: statefulset db is deleted, and its pods and claims stay; create it again with: kubectl create -f " + files[0] + ": "; got.Code != 1 ||
		!strings.HasPrefix(got.Errors, want) || strings.Count(got.Errors, "\n") != 1 {
		t.Errorf("answer %+v, want %q", got, want)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), "storage: 20Gi") || !strings.Contains(string(text), "kind: StatefulSet\n") || strings.Contains(string(text), "uid:") {
		t.Errorf("%v: the file has %s", err, text)
	}
}

func TestTheManifestStaysOnlyIfTheResultOfTheDeletionIsUnknown(t *testing.T) {
	for _, test := range []struct {
		failure error
		want    string
		stays   bool
	}{
		{&url.Error{Op: "Delete", URL: "https://api", Err: io.ErrUnexpectedEOF},
			"Error: it is unknown whether statefulset db was deleted (its pods and claims stay); if it was, create it again with: ", true},
		{apierrors.NewForbidden(appsv1.Resource("statefulsets"), "db", errors.New("no")), "Error: statefulset db cannot be deleted; ", false},
	} {
		got := newRecreateRig(t, test.failure).recreate(t)
		files, err := filepath.Glob(filepath.Join(os.TempDir(), "statefulset-db-*.yaml"))
		if err != nil || got.Code != 1 || !strings.HasPrefix(got.Errors, test.want) {
			t.Errorf("%v; answer %+v, want %q", err, got, test.want)
		}
		if stays := len(files) == 1 && strings.Contains(got.Errors, "kubectl create -f "+files[0]); stays != test.stays {
			t.Errorf("files %q; answer %+v; want the manifest to stay: %t", files, got, test.stays)
		}
		if !strings.Contains(got.Out, "the manifest of the new statefulset/db is in "+os.TempDir()) {
			t.Errorf("the output does not name the file before the deletion: %s", got.Out)
		}
	}
}

// TestRecreateFindsOutWhatHappenedIfTheAnswerToTheCreationIsLost loses the answer to the creation of the StatefulSet.
// It then exists: with the requested 20Gi, as the command created it, or with 10Gi, from another client.
func TestRecreateFindsOutWhatHappenedIfTheAnswerToTheCreationIsLost(t *testing.T) {
	for size, want := range map[string]string{"20Gi": "", "10Gi": "another client has already created a statefulset with this name"} {
		r := newRecreateRig(t, nil)
		attempts := 0
		r.core.PrependReactor("create", "statefulsets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			create := action.(clienttesting.CreateActionImpl)
			attempts++
			if len(create.CreateOptions.DryRun) > 0 || attempts > 2 { // the first attempt is a dry run, and the third one finds the StatefulSet
				return false, nil, nil
			}
			set := create.GetObject().(*appsv1.StatefulSet).DeepCopy()
			set.UID, set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = "second", sized(size)
			r.put(t, set)
			return true, nil, &url.Error{Op: "Post", URL: "https://api", Err: io.ErrUnexpectedEOF}
		})
		got := r.recreate(t)
		if (got.Code == 0) != (want == "") || !strings.Contains(got.Errors, want) {
			t.Errorf("template with %s: answer %+v, want %q", size, got, want)
		}
	}
}

func TestVolumesShowStatefulSets(t *testing.T) {
	r := newRig(t, "plain.yaml")
	for _, text := range []string{
		`{kind: StatefulSetVolumes, apiVersion: qos.noderesource.dev/v1alpha1, metadata: {name: web, namespace: default, generation: 2},
  spec: {volumeClaimTemplates: [{name: data, volumeAttributesClassName: gold}]}, status: {observedGeneration: 1, conditions: [{type: Ready, status: "True", reason: AllReplicasReady}]}}`,
		`{kind: StatefulSetVolumes, apiVersion: qos.noderesource.dev/v1alpha1, metadata: {name: db, namespace: default, generation: 1},
  spec: {volumeClaimTemplates: [{name: data, storage: 20Gi}, {name: log, storage: 5Gi}]},
  status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: Waiting, message: claim data-db-1 waits}],
  volumeClaimTemplates: [{templateName: data, readyReplicas: 1}, {templateName: log, readyReplicas: 3}]}}`,
	} {
		r.add(t, text)
	}
	wantAnswer(t, answer{Out: `
STATEFULSET   TEMPLATE   STORAGE   CLASS   READY REPLICAS   WHY
db            data       20Gi      -       1                Waiting: claim data-db-1 waits
db            log        5Gi       -       3                Waiting: claim data-db-1 waits
web           data       -         gold    0                qos-storage resize has not seen the request
`}, r.run(t, "volumes"))
}
