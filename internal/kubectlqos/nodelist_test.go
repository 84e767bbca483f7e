// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// manyNodes is an API server with a number of nodes. It has pages, as the real one does.
type manyNodes struct {
	number int
	// pods is the number of pods of a node that have the class gold.
	pods int
	// expires makes the second page expire. cut is the number of bytes that are missing at the end of the responses.
	expires  bool
	cut      int
	requests []string // what they accept, and their query
	live     []uint64 // bytes in use at each request
}

func (m *manyNodes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.requests = append(m.requests, r.Header.Get("Accept")+" "+r.URL.RawQuery)
	w.Header().Set("Content-Type", "application/json")
	if m.pods > 1 {
		var memory runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&memory)
		m.live = append(m.live, memory.HeapAlloc)
	}
	from, page := r.URL.Query().Get("continue"), nodeqosv1alpha1.NodeQOSResourcesList{}
	if m.expires && from == "500" {
		err := apierrors.NewResourceExpired("the list is too old")
		err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		err.ErrStatus.Continue = "500 again"
		w.WriteHeader(http.StatusGone)
		m.answer(w, err.ErrStatus)
		return
	}

	page.TypeMeta = metav1.TypeMeta{APIVersion: nodeqosv1alpha1.GroupVersion.String(), Kind: "NodeQOSResourcesList"}
	begin, _ := strconv.Atoi(strings.TrimSuffix(from, " again"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	end := min(begin+limit, m.number)
	for i := begin; i < end; i++ {
		page.Items = append(page.Items, m.node(i))
	}
	if end < m.number {
		page.Continue, page.RemainingItemCount = strconv.Itoa(end), new(int64(m.number-end))
	}
	m.answer(w, page)
}

func (m *manyNodes) answer(w io.Writer, object any) {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(text[:max(len(text)-m.cut, 0)])
}

// node returns a node on which pods of the namespace shop have the class gold, each of them in two containers.
func (m *manyNodes) node(i int) nodeqosv1alpha1.NodeQOSResources {
	gold := nodeqosv1alpha1.QOSResourceClassInfo{Name: "gold", Capacity: 4, InUse: 2}
	for pod := range max(m.pods, 1) {
		for _, container := range []string{"main", "side"} {
			gold.Holders = append(gold.Holders, nodeqosv1alpha1.Holder{Namespace: "shop", Pod: fmt.Sprintf("web-%d-%d", i, pod), Container: container})
		}
	}
	return nodeqosv1alpha1.NodeQOSResources{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodeqosv1alpha1.GroupVersion.String(), Kind: "NodeQOSResources"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)},
		Status: nodeqosv1alpha1.NodeQOSResourcesStatus{
			Conditions: []metav1.Condition{{Type: nodeqosv1alpha1.ConditionPluginReady, Status: metav1.ConditionTrue}},
			QOSResources: nodeqosv1alpha1.QOSResourceStatus{ContainerQOSResources: []nodeqosv1alpha1.QOSResourceInfo{{
				Name: "k8s.io/rdt", Classes: []nodeqosv1alpha1.QOSResourceClassInfo{gold},
			}}},
		},
	}
}

func (m *manyNodes) run(t *testing.T, args ...string) answer {
	t.Helper()
	server := httptest.NewServer(m)
	defer server.Close()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out, errs bytes.Buffer
	root := NewRootCommand("v0.1.0", genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errs})
	code := program.Execute(t.Context(), root, append([]string{"--server", server.URL}, args...))
	return answer{code, out.String(), errs.String()}
}

func TestAllNodesAreReadInPages(t *testing.T) {
	const page = "application/json limit=500"
	for _, test := range []struct {
		args     []string
		rows     string // the last row, with its number
		requests []string
	}{
		{[]string{"nodes"}, "1201 node-1200 | True | k8s.io/rdt | gold (2/4)", []string{page, page + "&continue=500", page + "&continue=1000"}},
		{[]string{"top"}, "1 k8s.io/rdt | gold | 1201 | 2402 | 4804 | 2402 | -", []string{page, page + "&continue=500", page + "&continue=1000"}},
		{[]string{"top", "--by-namespace"}, "1 k8s.io/rdt | gold | shop | 2402 | 1201", []string{page, page + "&continue=500", page + "&continue=1000"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			m := &manyNodes{number: 1201}
			got := m.run(t, test.args...)
			rows := strings.Split(bare(got.Out), "\n")
			if last := fmt.Sprint(len(rows), " ", rows[len(rows)-1]); last != test.rows || got.Errors != "" {
				t.Errorf("the last row is %q, want %q; errors %q", last, test.rows, got.Errors)
			}
			if diff := cmp.Diff(test.requests, sortedQueries(m.requests)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// sortedQueries puts the limit first in each request.
func sortedQueries(requests []string) (sorted []string) {
	for _, request := range requests {
		accept, query, _ := strings.Cut(request, " ")
		parameters := strings.Split(query, "&")
		slices.Sort(parameters)
		slices.Reverse(parameters)
		sorted = append(sorted, accept+" "+strings.Join(parameters, "&"))
	}
	return sorted
}

// TestTablesOfAllNodesKeepNoPods compares the memory in use after one page of nodes with that after two. The lists of all nodes must fit
// into memory, however many pods the nodes have.
func TestTablesOfAllNodesKeepNoPods(t *testing.T) {
	for _, command := range []string{"nodes", "top", "top --by-namespace"} {
		t.Run(command, func(t *testing.T) {
			m := &manyNodes{number: 1001, pods: 110}
			if got := m.run(t, strings.Fields(command)...); got.Code != 0 {
				t.Fatalf("answer is %+v", got)
			}
			const most = 6 << 20 // the objects of 500 nodes have 7 MB of JSON, and need more in memory
			if first, last := m.live[1], m.live[len(m.live)-1]; last > first+most {
				t.Errorf("after 500 nodes, %d bytes are in use, and after 1000 nodes %d", first, last)
			}
		})
	}
}

// TestNodesOfAllPagesArePrinted has 1201 nodes, which are three pages of at most 500.
func TestNodesOfAllPagesArePrinted(t *testing.T) {
	m := &manyNodes{number: 1201}
	got := m.run(t, "nodes", "-o", "name")
	if names := strings.Fields(got.Out); len(names) != 1201 || len(m.requests) != 3 {
		t.Errorf("%d requests, %d names, errors %q", len(m.requests), len(names), got.Errors)
	}
}

// TestAListOfNodesContinuesAfterItHasExpired has three pages. The second one expires, and is requested again.
func TestAListOfNodesContinuesAfterItHasExpired(t *testing.T) {
	m := &manyNodes{number: 1201, expires: true}
	got := m.run(t, "top")
	if bare(got.Out) != "k8s.io/rdt | gold | 1201 | 2402 | 4804 | 2402 | -" || len(m.requests) != 4 {
		t.Errorf("%d requests, answer %+v", len(m.requests), got)
	}
}

func TestAResponseThatEndsEarlyIsAnErrorOfOneLine(t *testing.T) {
	// With so many bytes missing, the response ends after the list, after a node, inside of a node, and before the first byte.
	for _, cut := range []int{1, 2, 100, 1 << 20} {
		m := &manyNodes{number: 3, cut: cut}
		wantAnswer(t, answer{Code: 1, Errors: "Error: the response of the API server ended early: unexpected EOF; try again\n"}, m.run(t, "top"))
	}
}

func TestCompletionReadsOnlyTheNamesOfObjects(t *testing.T) {
	m := &manyNodes{number: 1201}
	got := m.run(t, "__complete", "nodes", "")
	if words := strings.Fields(got.Out); len(words) < 1201 || words[1200] != "node-1200" {
		t.Errorf("completed %d words", len(words))
	}
	for _, request := range m.requests {
		if !strings.HasPrefix(request, namesOnly+" ") {
			t.Errorf("request %q", request)
		}
	}
}

func TestPodsReadsOnlyTheNodesOfThePods(t *testing.T) {
	r := newRig(t, "nodes.yaml", "pods.yaml")
	before := r.run(t, "pods", "-n", "shop", "cart")
	if before.Code != 0 || !strings.Contains(before.Out, "cart") {
		t.Fatalf("answer is %+v", before)
	}
	for _, action := range r.objects.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("the command makes the request %q, want only get", action.GetVerb())
		}
	}
}

func TestProgressIsShownWhenAListTakesLong(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := &progress{out: &out, began: now, now: func() time.Time { return now }}

	p.show(500, 5000)
	p.clear()
	if out.Len() > 0 {
		t.Errorf("a fast list shows %q", out.String())
	}

	now = now.Add(2 * time.Second)
	p.show(1000, 5000)
	p.show(1500, 5000)
	p.clear()
	if want := "\rReading nodes: 1000 of 5000\rReading nodes: 1500 of 5000\r\x1b[K"; out.String() != want {
		t.Errorf("a slow list shows %q, want %q", out.String(), want)
	}
}
