// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// quiet is the shortest time between two lines that say that the same begins.
const quiet = time.Hour

// trouble is what goes wrong for pods with one remedy. With a policy that is of one namespace; what is of the server has none.
type trouble struct {
	what, namespace string
	outcome         kubeapi.Outcome
}

// affected are the pods that have a trouble.
type affected struct {
	pods map[types.UID]bool
	// told is when the log had that it began; ended says that it has the end, too.
	told  time.Time
	ended bool
}

// teller says in the log how things go that are tried for many pods: when the first of them has a trouble, and when none has it any
// more. That some can be written while others cannot is no news.
type teller struct {
	log *slog.Logger

	mu       sync.Mutex // guards all below
	troubles map[trouble]*affected
}

// tell takes what came of a try for a pod.
func (t *teller) tell(what, namespace string, pod types.UID, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := trouble{what: what, namespace: namespace, outcome: kubeapi.OutcomeOf(err)}
	if ofServer(err) {
		now.namespace = ""
	}
	for is, of := range t.troubles {
		if is.what != what || is == now || !of.pods[pod] {
			continue
		}
		delete(of.pods, pod)
		if err == nil && len(of.pods) == 0 && !of.ended {
			of.ended = true
			t.log.Info("works again", is.attributes()...)
		}
	}
	if err != nil {
		t.begin(now, pod, err)
	}
}

func (t *teller) begin(is trouble, pod types.UID, err error) {
	of := t.troubles[is]
	if of == nil {
		of = &affected{pods: map[types.UID]bool{}, ended: true}
		t.troubles[is] = of
	}
	of.pods[pod] = true
	if !of.ended || (!of.told.IsZero() && time.Since(of.told) < quiet) {
		return
	}
	of.told, of.ended = time.Now(), false
	t.log.Warn("failed, trying again", append(is.attributes(), "problem", kubeapi.Explain(err))...)
}

// forget drops a pod that is gone, and what was long ago.
func (t *teller) forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.troubles, func(_ trouble, of *affected) bool {
		delete(of.pods, pod)
		return len(of.pods) == 0 && time.Since(of.told) >= quiet
	})
}

func (t trouble) attributes() []any {
	list := []any{"what", t.what}
	if t.namespace != "" {
		list = append(list, "namespace", t.namespace)
	}
	return list
}

// watching says in the log how the watch of the pods goes.
type watching struct {
	mu     sync.Mutex // guards report
	report kubeapi.Report
}

func (w *watching) tell(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Tell(err)
}
