// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// rig is a cluster that commands are run against.
type rig struct {
	core    *corefake.Clientset
	objects *dynamicfake.FakeDynamicClient
	now     time.Time
	clock   func() time.Time // replaces the field `now`, unless it is nil
	plugins *plugins
	pause   func(context.Context, time.Duration) // if it is nil, commands do not wait
	stdin   io.Reader                            // if it is nil, standard input is empty
}

// newRig returns a cluster with the objects in YAML files of testdata: NodeQOSResources, pods and namespaces.
func newRig(t *testing.T, files ...string) *rig {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{nodeKind(): "NodeQOSResourcesList", volumesKind(): "StatefulSetVolumesList"}
	for _, of := range workloadTypes() {
		kinds[appsv1.SchemeGroupVersion.WithResource(of.name+"s")] = "List"
	}
	r := &rig{
		core:    corefake.NewClientset(),
		objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
		now:     time.Date(2026, 5, 1, 13, 0, 0, 0, time.UTC),
	}
	r.load(t, files...)
	return r
}

// load adds the objects in YAML files of testdata.
func (r *rig) load(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		for _, text := range documentsIn(t, file) {
			r.add(t, text)
		}
	}
}

func documentsIn(t *testing.T, file string) []string {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join("testdata", file)))(t)
	return strings.Split(string(data), "\n---\n")
}

// add puts an object into the cluster.
func (r *rig) add(t *testing.T, text string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}

	switch kind := object.GetKind(); kind {
	case "NodeQOSResources":
		must.Do(t, r.objects.Tracker().Create(nodeKind(), object, ""))
	case "StatefulSetVolumes":
		must.Do(t, r.objects.Tracker().Create(volumesKind(), object, "default"))
	case "Deployment", "StatefulSet", "DaemonSet":
		resource := appsv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
		must.Do(t, r.objects.Tracker().Create(resource, object, object.GetNamespace()))
	case "Pod":
		r.put(t, podOf(t, text))
	case "Namespace":
		r.put(t, &corev1.Namespace{ObjectMeta: podOf(t, text).ObjectMeta})
	default:
		t.Fatalf("unknown kind %q in %s", kind, text)
	}
}

// put puts objects of Kubernetes into the cluster.
func (r *rig) put(t *testing.T, objects ...runtime.Object) {
	t.Helper()
	for _, object := range objects {
		must.Do(t, r.core.Tracker().Add(object))
	}
}

func podOf(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(text), pod); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if pod.Namespace == "" && pod.Kind == "Pod" {
		pod.Namespace = "default"
	}
	return pod
}

// updatePod changes a pod under the field manager of qos-kubelet-shim.
func (r *rig) updatePod(t *testing.T, name string, change func(*corev1.Pod)) {
	t.Helper()
	r.updatePodIn(t, "default", name, change)
}

func (r *rig) updatePodIn(t *testing.T, namespace, name string, change func(*corev1.Pod)) {
	t.Helper()
	object := must.Get(r.core.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), namespace, name))(t)
	pod := object.DeepCopyObject().(*corev1.Pod)
	change(pod)
	as := metav1.UpdateOptions{FieldManager: nodeqosv1alpha1.FieldManager}
	must.Do(t, r.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace, as))
}

func (r *rig) updateNode(t *testing.T, name string, change func(object map[string]any)) {
	t.Helper()
	object := must.Get(r.objects.Tracker().Get(nodeKind(), "", name))(t)
	node := object.DeepCopyObject().(*unstructured.Unstructured)
	change(node.Object)
	must.Do(t, r.objects.Tracker().Update(nodeKind(), node, ""))
}

// updateStatus changes the status of the NodeQOSResources of a node.
func (r *rig) updateStatus(t *testing.T, name string, change func(status map[string]any)) {
	t.Helper()
	r.updateNode(t, name, func(object map[string]any) { change(object["status"].(map[string]any)) })
}

// updateResource changes the first resource in a list of the status of a node, e.g. in containerQOSResources.
func (r *rig) updateResource(t *testing.T, name, list string, change func(resource map[string]any)) {
	t.Helper()
	r.updateStatus(t, name, func(status map[string]any) {
		change(status["qosResources"].(map[string]any)[list].([]any)[0].(map[string]any))
	})
}

// answer has the exit code and the output of a command.
type answer struct {
	Code        int
	Out, Errors string
}

func (r *rig) run(t *testing.T, args ...string) answer {
	t.Helper()
	var out, errs bytes.Buffer
	code := r.execute(t.Context(), &out, &errs, args...)
	return answer{code, out.String(), errs.String()}
}

func (r *rig) execute(ctx context.Context, out, errs io.Writer, args ...string) int {
	c := &cluster{
		streams: genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: errs},
		now:     func() time.Time { return r.now },
		pause:   func(context.Context, time.Duration) {},
	}
	if r.stdin != nil {
		c.streams.In = r.stdin
	}
	if r.pause != nil {
		c.pause = r.pause
	}
	if r.clock != nil {
		c.now = r.clock
	}

	var namespace string
	c.connect = func() (*clients, error) {
		api := &clients{core: r.core, objects: r.objects, namespace: namespace, read: r.readNodes}
		if r.plugins != nil {
			api.fetch = r.plugins.fetch
		}
		return api, nil
	}

	root := newRootCommand(c, "v0.1.0")
	root.PersistentFlags().StringVarP(&namespace, "namespace", "n", "default", "")
	return program.Execute(ctx, root, args)
}

// readNodes is the field `read` of the clients. It reads the simulated API, which has no pages.
func (r *rig) readNodes(
	ctx context.Context, _ string, page metav1.ListOptions, each func(*nodeqosv1alpha1.NodeQOSResources),
) (metav1.ListMeta, error) {
	list, err := r.objects.Resource(nodeKind()).List(ctx, page)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	data, err := list.MarshalJSON()
	if err != nil {
		return metav1.ListMeta{}, err
	}
	return decodeNodes(bytes.NewReader(data), each)
}

// wantAnswer compares two answers. The wanted texts may begin with a line break, which is ignored.
func wantAnswer(t *testing.T, want, got answer) {
	t.Helper()
	want.Out, want.Errors = strings.TrimPrefix(want.Out, "\n"), strings.TrimPrefix(want.Errors, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer differs (-want +got):\n%s", diff)
	}
}

// watched collects the output of a running command.
type watched struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func newWatched() *watched { return &watched{written: make(chan struct{}, 1)} }

func (w *watched) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		select {
		case w.written <- struct{}{}:
		default:
		}
	}()
	return w.text.Write(data)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await waits until the output contains a text.
func (w *watched) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !strings.Contains(w.String(), text) {
		select {
		case <-w.written:
		case <-deadline:
			t.Fatalf("no %q in:\n%s", text, w.String())
		}
	}
}
