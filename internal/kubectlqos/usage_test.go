// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// plugins simulates the plugins of the nodes, from which "kubectl qos top usage" requests the usage.
type plugins struct {
	asked int
	// blamed has the queries for "kubectl qos blame".
	blamed []string
	// recommendations are all that "kubectl qos recommend" gets. `recommended` has its queries.
	recommendations *qosv1alpha1.RecommendResponse
	mu              sync.Mutex // guards `recommended`, because the command asks for several pods at once
	recommended     []string
	// fails maps the nodes that do not answer to their errors. `answers` maps nodes to answers that replace the default
	// answer.
	fails   map[string]error
	answers map[string]string
}

// fetch answers for node-1 and node-2 as the plugin would. The time of each answer is 5 s
// after the time of the previous answer.
func (p *plugins) fetch(_ context.Context, pod *corev1.Pod, port int32, path string) ([]byte, error) {
	node := pod.Spec.NodeName
	asked, err := url.Parse(path)
	switch {
	case err != nil || port != 9420:
		return nil, fmt.Errorf("asked for %s on port %d", path, port)
	case p.answers[node] != "" || p.fails[node] != nil:
		return []byte(p.answers[node]), p.fails[node]
	case asked.Path == "/blame":
		return p.blame(asked.Query())
	case asked.Path == "/recommend":
		return p.recommend(asked.Query())
	case path != "/usage":
		return nil, fmt.Errorf("asked for %s", path)
	}

	p.asked++
	at := time.Date(2026, 5, 1, 13, 0, 5*p.asked, 0, time.UTC).Format(time.RFC3339Nano)
	used := float64(p.asked) * 5 * (1 << 20) // grows by 1 MiB per second
	rdt := func(occupied, used float64) string {
		return fmt.Sprintf(`"measurements": [{"name": "llc_occupancy_bytes", "part": "0", "value": %v},
			{"name": "memory_bandwidth_bytes_total", "part": "0", "value": %v}]`, occupied, used)
	}

	return fmt.Appendf(nil, `{"time": %q, "classes": [
		{"resource": "k8s.io/rdt", "class": "", %s}, {"resource": "k8s.io/rdt", "class": "gold", %s},
		{"resource": "k8s.io/blockio", "class": "throttled", "measurements": [{"name": "fs_reads_bytes_total", "part": "sda", "value": %v}]}],
		"containers": [{"resource": "k8s.io/rdt", "namespace": "shop", "pod": "cart", "container": "main", "class": "gold", "id": "c1", %s},
		{"resource": "k8s.io/blockio", "namespace": "default", "pod": "web", "container": "", "class": "throttled", "id": "p1",
		 "measurements": [{"name": "fs_reads_bytes_total", "part": "sda", "value": %v}]}]}`,
		at, rdt(1<<20, 30*used), rdt(12<<20, 600*used), 4*used, rdt(11<<20, 500*used), 4*used), nil
}

// notAnswering is the error of a node on which the plugin does not run.
const notAnswering = "failed to connect to localhost:9420: connection refused"

// withPlugins adds the plugin's pods of two nodes. The plugin of node-2 does not answer.
func (r *rig) withPlugins(t *testing.T) *rig {
	t.Helper()
	for _, text := range documentsIn(t, "plugin.yaml") {
		r.add(t, text)
	}
	r.plugins = &plugins{recommendations: recommendAnswer(t), fails: map[string]error{"node-2": podError{notAnswering}}, answers: map[string]string{}}
	return r
}

func TestANodeThatDoesNotAnswerIsReportedWithTheReason(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("pods/portforward"), "qos-nri-plugin-x7vwq", errors.New("no rule allows it"))
	for _, test := range []struct {
		name, answer string
		fails        error
		phase        corev1.PodPhase
		want         string
	}{
		{name: "the plugin does not run", fails: podError{notAnswering},
			want: notAnswering + "; see: kubectl logs -n qos-system qos-nri-plugin-x7vwq -c plugin"},
		{name: "without the right", fails: forbidden,
			want: `a permission is missing: pods/portforward "qos-nri-plugin-x7vwq" is forbidden: no rule allows it; ` +
				"this command needs a Role in namespace qos-system with the verbs get and create for pods/portforward"},
		{name: "the pod does not run", phase: corev1.PodPending,
			want: "pod qos-nri-plugin-x7vwq is Pending; see: kubectl describe pod -n qos-system qos-nri-plugin-x7vwq"},
		{name: "the plugin cannot measure", fails: podError{"the usage cannot be measured now"}, want: "the usage cannot be measured now; see: kubectl logs"},
		{name: "another version", answer: `{"time": 5}`, want: "the answer of qos-nri-plugin cannot be read: "},
		{name: "a machine that measures nothing", answer: `{"time": "2026-05-01T13:00:00Z"}`, want: "nothing is measured: "},
		{name: "no monitoring", answer: `{"time": "2026-05-01T13:00:00Z", "classes": [{"resource": "k8s.io/rdt"}, {"resource": "k8s.io/rdt", "class": "gold"}]}`,
			want: `no container is measured for k8s.io/rdt; if containers use it, add "monitoring: containers" to its class file`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t).withPlugins(t)
			r.plugins.fails["node-2"] = test.fails
			if test.answer != "" {
				r.plugins.answers["node-2"] = test.answer
			}
			if test.phase != "" {
				r.updatePodIn(t, "qos-system", "qos-nri-plugin-x7vwq", func(pod *corev1.Pod) { pod.Status.Phase = test.phase })
			}
			got := r.run(t, "top", "usage", "--once", "--containers")
			if got.Code != 0 || !strings.Contains(got.Out, "node-1") || !strings.HasPrefix(got.Errors, "Note: node-2: "+test.want) ||
				strings.Count(got.Errors, "\n") != 1 {
				t.Errorf("answer %+v, want %s", got, test.want)
			}
		})
	}
}

func TestWithoutAnyAnswerUsageFails(t *testing.T) {
	r := newRig(t)
	wantAnswer(t, answer{Code: 1, Errors: `
Error: namespace "qos-system" has no pod of qos-nri-plugin on any node; check the DaemonSet, or name its namespace with --plugin-namespace
`}, r.run(t, "top", "usage"))
	r.withPlugins(t)
	wantAnswer(t, answer{Code: 1, Errors: `
Error: namespace "qos-system" has no pod of qos-nri-plugin on node "node-3"; check the DaemonSet, or name its namespace with --plugin-namespace
`}, r.run(t, "top", "usage", "node-3"))
	wantAnswer(t, answer{Code: 1, Errors: "Note: node-2: " + notAnswering + `; see: kubectl logs -n qos-system qos-nri-plugin-x7vwq -c plugin
Error: no node has answered; the notes above have the reasons
`}, r.run(t, "top", "usage", "node/node-2"))
}

func TestManyNodesThatDoNotAnswerAreSummarized(t *testing.T) {
	r := newRig(t).withPlugins(t)
	failing := documentsIn(t, "plugin.yaml")[1]
	for i := range 50 {
		node := fmt.Sprintf("failing-%02d", i)
		r.add(t, strings.NewReplacer("node-2", node, "x7vwq", node).Replace(failing))
		r.plugins.fails[node] = podError{notAnswering}
	}

	got := r.run(t, "top", "usage", "--once")
	lines := strings.Split(strings.TrimSuffix(got.Errors, "\n"), "\n")
	// 51 nodes do not answer: node-2 and the 50 new ones. Notes are printed for 10 of them.
	const last = "Note: similar notes that are left out: 41; see those of one node with: kubectl qos top usage NODE"
	if got.Code != 0 || !strings.Contains(got.Out, "node-1") || len(lines) != 11 || lines[10] != last {
		t.Errorf("exit code %d, %d lines of notes, the last of them %q", got.Code, len(lines), lines[len(lines)-1])
	}
}

func TestUsageOfANodeIsTheSumOfItsClasses(t *testing.T) {
	r := newRig(t).withPlugins(t)
	r.plugins.answers["node-2"] = `{"time": "2026-05-01T13:00:00Z", "classes": [{"resource": "k8s.io/rdt", "class": "",
		"measurements": [{"name": "llc_occupancy_bytes", "part": "0", "value": 4096}]}, {"resource": "k8s.io/rdt", "class": "gold",
		"measurements": [{"name": "llc_occupancy_bytes", "part": "1", "value": 32768}, {"name": "llc_occupancy_bytes", "part": "0", "value": 8192}]}]}`

	r.plugins.fails["node-2"] = nil

	got := r.run(t, "top", "usage", "--once", "--by-node", "--containers", "--sort-by=cache")
	got.Errors = "" // the notes of node-2
	// On node-1, the system default has 1 MiB and 30 MiB/s, and class gold has 12 MiB and 600 MiB/s. Containers are not added up.
	wantAnswer(t, answer{Out: `
NODE     RESOURCE         PART   READ/s
node-1   k8s.io/blockio   sda    4.0Mi

NODE     RESOURCE     PART   CACHE   MEMORY/s
node-1   k8s.io/rdt   0      13Mi    630Mi
node-2   k8s.io/rdt   1      32Ki    -
node-2   k8s.io/rdt   0      12Ki    -

NODE     RESOURCE         NAMESPACE   POD   CONTAINER   CLASS       PART   READ/s
node-1   k8s.io/blockio   default     web   <pod>       throttled   sda    4.0Mi

NODE     RESOURCE     NAMESPACE   POD    CONTAINER   CLASS   PART   CACHE   MEMORY/s
node-1   k8s.io/rdt   shop        cart   main        gold    0      11Mi    500Mi
`}, got)
}

// TestUsageRepeatsUntilInterrupted checks the output of three intervals. The output is not a terminal, so it contains
// no escape sequences. A note that repeats is printed only once.
func TestUsageRepeatsUntilInterrupted(t *testing.T) {
	r := newRig(t).withPlugins(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	waits := []time.Duration{}
	r.pause = func(_ context.Context, d time.Duration) {
		if waits = append(waits, d); len(waits) == 3 {
			interrupt()
		}
	}

	var out, errs strings.Builder
	code := r.execute(ctx, &out, &errs, "top", "usage", "--interval", "7s")
	if code != 0 || strings.Count(out.String(), "\nNODE") != 3 || strings.Contains(out.String(), "\x1b") || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("exit code %d, output %q, notes %q", code, out.String(), errs.String())
	}

	if !slices.Equal(waits, []time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}) {
		t.Errorf("waited %s", waits)
	}
}

func TestUsageRefusesWrongFlags(t *testing.T) {
	r := newRig(t).withPlugins(t)
	for want, args := range map[string][]string{
		`--sort-by "size" is not one of cache, memory,`: {"--sort-by=size"},
		`--interval 500ms is shorter than 1s`:           {"--interval=500ms"},
		`--by-node works for tables only`:               {"--by-node", "-o=json"},
		`at most one NODE can be given, not 2`:          {"a", "b"},
		`"pod/a" is not a node`:                         {"pod/a"},
	} {
		if got := r.run(t, append([]string{"top", "usage"}, args...)...); got.Code != program.ExitUsage || !strings.Contains(got.Errors, want) {
			t.Errorf("%s: answer is %+v", args, got)
		}
	}
}

func TestThePluginsAnswerIsRead(t *testing.T) {
	at := time.Date(2026, 5, 1, 13, 0, 0, 500, time.UTC)
	measurements := []*qosv1alpha1.Measurement{{Name: "fs_reads_total", Part: "sda", Value: 1 << 40}}
	data := must.Get(protojson.Marshal(&qosv1alpha1.WatchUsageResponse{
		Time:       timestamppb.New(at),
		Classes:    []*qosv1alpha1.ClassUsage{{Resource: "k8s.io/rdt", Class: "gold", Measurements: measurements}},
		Containers: []*qosv1alpha1.ContainerUsage{{Resource: "k8s.io/rdt", Namespace: "shop", Pod: "cart", Container: "main", Id: "c1", Measurements: measurements}},
	}))(t)

	var got nodeUsage
	must.Do(t, json.Unmarshal(data, &got))
	read := []tables.Measurement{{Name: "fs_reads_total", Part: "sda", Value: 1 << 40}}
	want := nodeUsage{
		Time:       at,
		Classes:    []measured{{Resource: "k8s.io/rdt", Class: "gold", Measurements: read}},
		Containers: []measured{{Resource: "k8s.io/rdt", Namespace: "shop", Pod: "cart", Container: "main", ID: "c1", Measurements: read}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the answer differs (-want +got):\n%s", diff)
	}
}
