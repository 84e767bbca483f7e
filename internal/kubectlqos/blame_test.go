// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// blameAt returns a time after 12:00 on the day of the answers.
func blameAt(minute, second int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 5, 1, 12, minute, second, 0, time.UTC))
}

// blameAnswer is the answer of the plugin of node-1 about the node. It has a container with culprits, one whose causes are its
// own, and one with culprits for memory, but without a cause for I/O and for a CPU.
func blameAnswer() *qosv1alpha1.BlameResponse {
	during := func(resource string, f *qosv1alpha1.BlameFinding) *qosv1alpha1.BlameFinding {
		f.Resource, f.From, f.To = resource, blameAt(50, 15), blameAt(54, 30)
		return f
	}
	slow := &qosv1alpha1.ClassSuggestion{Resource: "k8s.io/blockio", Class: "slow", Limit: "ThrottleWriteBps", Bound: 20e6, Mutable: true}
	return &qosv1alpha1.BlameResponse{From: blameAt(45, 0), To: blameAt(59, 45), Sufferers: []*qosv1alpha1.Sufferer{
		{Namespace: "default", Pod: "web", PodUid: "uid-web", Container: "main", Findings: []*qosv1alpha1.BlameFinding{
			during("io", &qosv1alpha1.BlameFinding{Part: "sda", Before: 0.03, During: 0.62, Culprits: []*qosv1alpha1.Culprit{
				{Namespace: "batch", Pod: "batch-7", Container: "main", Name: "fs_writes_bytes_total", Part: "sda", Before: 2.1e6, During: 380e6, Share: 0.91,
					Correlation: 0.97, Suggestion: slow},
				{Namespace: "batch", Pod: "batch-8", Container: "main", Name: "fs_reads_total", Part: "sda", Before: 20, During: 1500, Share: 0.3, Correlation: 0.6,
					Suggestion: &qosv1alpha1.ClassSuggestion{Resource: "k8s.io/blockio", Class: "slow", Limit: "ThrottleReadIOPS", Bound: 500}},
				{Namespace: "batch", Pod: "old", Container: "main", Name: "fs_reads_bytes_total", Part: "sda", During: 1e6, Share: 0.2, Correlation: 0.6, Ended: true},
			}}),
			during("cache", &qosv1alpha1.BlameFinding{Part: "1", Before: 9e6, During: 3e6, Culprits: []*qosv1alpha1.Culprit{
				{Namespace: "batch", Pod: "batch-7", Container: "main", Name: "llc_occupancy_bytes", Part: "1", Before: 1e6, During: 8e6, Share: 1, Correlation: 0.9},
			}}),
			during("memory-bandwidth", &qosv1alpha1.BlameFinding{Part: "0", Before: 4e9, During: 1e9, Culprits: []*qosv1alpha1.Culprit{
				{Namespace: "batch", Pod: "batch-7", Container: "main", Name: "memory_bandwidth_bytes_total", Part: "0", Before: 1e9, During: 8e9, Share: 1,
					Correlation: 0.9, Suggestion: &qosv1alpha1.ClassSuggestion{Resource: "example.com/pod", Class: "slow", Limit: "MBps", Bound: 2e9, Mutable: true, Pod: true}},
			}}),
		}},
		{Namespace: "shop", Pod: "cart", PodUid: "uid-cart", Container: "main", Findings: []*qosv1alpha1.BlameFinding{
			during("cpu", &qosv1alpha1.BlameFinding{Before: 0.01, During: 0.5, Own: []*qosv1alpha1.OwnCause{
				{Reason: "throttled", Name: "cpu_cfs_throttled_seconds_total", During: 0.45},
				{Reason: "uses-more", Name: "cpu_usage_seconds_total", Before: 0.1, During: 3.2},
			}}),
			during("memory", &qosv1alpha1.BlameFinding{Before: 0.3, During: 0.3, Always: true, Own: []*qosv1alpha1.OwnCause{
				{Reason: "memory-limit", Name: "memory_high_events_total", Before: 2, During: 2},
				{Reason: "memory-limit", Name: "memory_max_events_total", Before: 2, During: 3},
			}}),
			during("io", &qosv1alpha1.BlameFinding{Before: 0.1, During: 0.3, Own: []*qosv1alpha1.OwnCause{
				{Reason: "class-limit", Name: "fs_writes_bytes_total", Part: "sda", Before: 1e6, During: 9.8e6, Limit: 10e6},
				{Reason: "class-limit", Name: "fs_writes_bytes_total", Part: "sda", Before: 1e6, During: 19e6, Limit: 20e6, Pod: true},
				{Reason: "memory-limit", Name: "memory_max_events_total", During: 3, Pod: true},
				{Reason: "throttled", Name: "cpu_cfs_throttled_seconds_total", During: 0.45, Pod: true},
			}}),
		}},
		{Namespace: "data", Pod: "db", PodUid: "uid-db", Container: "main", Findings: []*qosv1alpha1.BlameFinding{
			during("memory", &qosv1alpha1.BlameFinding{Before: 0.01, During: 0.3, Culprits: []*qosv1alpha1.Culprit{
				{Namespace: "batch", Pod: "batch-7", Container: "main", Name: "memory_bytes", Before: 1e9, During: 9e9, Share: 1, Correlation: 0.9},
				{Namespace: "batch", Pod: "batch-8", Container: "main", Name: "memory_refaults_total", Before: 10, During: 9e3, Share: 1, Correlation: 0.9},
			}}),
			during("io", &qosv1alpha1.BlameFinding{Before: 0.1, During: 0.3}),
			during("cpu", &qosv1alpha1.BlameFinding{Before: 0.3, During: 0.3, Always: true}),
		}},
	}}
}

// blame answers for node-1 as the plugin would: about a pod, or about the whole node. Nothing suffered in the last minute.
func (p *plugins) blame(values url.Values) ([]byte, error) {
	p.blamed = append(p.blamed, values.Encode())
	answer := blameAnswer()
	for _, s := range answer.GetSufferers() {
		if s.GetPod() == values.Get("pod") {
			answer.Sufferers = []*qosv1alpha1.Sufferer{s}
			break
		}
	}
	if values.Get("since") == "1m0s" {
		answer.Sufferers = nil
		if values.Get("pod") != "" {
			answer.Sufferers = []*qosv1alpha1.Sufferer{{Namespace: values.Get("namespace"), Pod: values.Get("pod"), Container: "main"}}
		}
	}
	return protojson.Marshal(answer)
}

func TestBlameAsksForTheUIDThatThePodHasInTheRuntime(t *testing.T) {
	r := newRig(t, "nodes.yaml", "pods.yaml").withPlugins(t)
	r.updatePod(t, "web", func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"} })
	for _, args := range []string{"pod/web --since 5m -c main", "cart -n shop", "no/node-1"} {
		if got := r.run(t, append([]string{"blame"}, strings.Fields(args)...)...); got.Code != 0 {
			t.Errorf("%s: answer is %+v", args, got)
		}
	}
	want := []string{
		"container=main&namespace=default&pod=web&podUid=hash&since=5m0s", // a static pod
		"container=&namespace=shop&pod=cart&podUid=uid-cart",
		"",
	}
	if diff := cmp.Diff(want, r.plugins.blamed); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
}

func TestAnErrorOfBlameOrRecommendIsOneLine(t *testing.T) {
	const off = "nothing is recorded: start qos-nri-plugin with --history-interval=15s"
	for _, test := range []struct {
		name, args, want string
		fails            error
		answer           string
		code             int
	}{
		{name: "no argument", args: "blame", want: "name one POD, or a node as node/NODE; there are 0 arguments", code: program.ExitUsage},
		{name: "no workload", args: "recommend", want: "name one POD, or a workload as TYPE/NAME; there are 0 arguments", code: program.ExitUsage},
		{name: "two pods", args: "blame a b", want: "name one POD, or a node as node/NODE; there are 2 arguments", code: program.ExitUsage},
		{name: "neither pod nor node", args: "blame deploy/a", want: `"deploy/a" is not a pod`, code: program.ExitUsage},
		{name: "another type", args: "recommend node/a", want: `"node/a" is neither a pod nor a workload; pass a POD, deployment/NAME`, code: program.ExitUsage},
		{name: "a workload without a name", args: "recommend sts/", want: `"sts/" does not name a statefulset`, code: program.ExitUsage},
		{name: "a container of a node", args: "blame node/a -c main", want: "--container selects a container of a pod", code: program.ExitUsage},
		{name: "a negative duration", args: "blame web --since=-1s", want: "--since -1s is negative", code: program.ExitUsage},
		{name: "an unknown pod", args: "blame nowhere", want: `there is no pod "nowhere" in namespace "default"; name another namespace with -n`, code: 1},
		{name: "an unknown pod of recommend", args: "recommend nowhere", want: `there is no pod "nowhere" in namespace "default"`, code: 1},
		{name: "an unknown workload", args: "recommend deploy/nowhere",
			want: `there is no deployment "nowhere" in namespace "default"; name another namespace`, code: 1},
		{name: "a pod without a node", args: "blame late", want: `pod "late" has no node yet, so nothing is recorded of it`, code: 1},
		{name: "a pod of recommend without a node", args: "recommend late", want: `pod "late" has no node yet, so nothing is recorded of it`, code: 1},
		{name: "an unknown node", args: "blame node/node-7", want: `has no pod of qos-nri-plugin on node "node-7"`, code: 1},
		{name: "no plugin", args: "recommend web --plugin-namespace other",
			want: `namespace "other" has no pod of qos-nri-plugin on node "node-1"`, code: 1},
		{name: "the history is off", args: "blame web", fails: podError{off}, want: `node "node-1": ` + off, code: 1},
		{name: "the history of recommend is off", args: "recommend web", fails: podError{off}, want: `node "node-1": ` + off, code: 1},
		{name: "an old plugin", args: "blame web", fails: podError{"404 page not found"}, want: `node "node-1": the plugin of this node is too old`, code: 1},
		{name: "an answer of another version", args: "blame web", answer: `{"from": 5}`, want: "the answer of qos-nri-plugin cannot be read", code: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, "nodes.yaml", "pods.yaml").withPlugins(t)
			r.plugins.fails["node-1"] = test.fails
			if test.answer != "" {
				r.plugins.answers["node-1"] = test.answer
			}
			got := r.run(t, strings.Fields(test.args)...)
			line, _, _ := strings.Cut(got.Errors, "\n")
			if got.Code != test.code || !strings.Contains(line, test.want) || test.code == 1 && strings.Count(got.Errors, "\n") != 1 {
				t.Errorf("answer %+v, want %s", got, test.want)
			}
		})
	}
}

func TestBlameSaysHowManyContainersWereNotRecorded(t *testing.T) {
	r := newRig(t, "nodes.yaml", "pods.yaml").withPlugins(t)
	r.plugins.answers["node-1"] = `{"from": "2026-05-01T12:45:00Z", "to": "2026-05-01T12:59:45Z", "incompleteContainers": 7}`
	want := "The history of node node-1 has no room for 7 containers, or for some of their disks; they can be missing here.\n"
	if got := r.run(t, "blame", "node/node-1"); got.Code != 0 || got.Errors != want {
		t.Errorf("answer is %+v, want %q", got, want)
	}
}

func TestBlameCompletesPodsAndNodes(t *testing.T) {
	r := newRig(t, "nodes.yaml", "pods.yaml")
	for begun, want := range map[string]string{"": "web\n", "node/": "node/node-1\n"} {
		if got := r.run(t, "__complete", "blame", begun); !strings.Contains(got.Out, want) {
			t.Errorf("%q is completed to %q, want %q among them", begun, got.Out, want)
		}
	}
}
