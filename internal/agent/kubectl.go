// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
)

// toPodItself serves a command of kubectl with the JSON form of a report. It answers only connections from the plugin's own pod. The node
// makes such a connection when the API server permits a user to forward a port of the pod. Any other pod could connect without a
// permission, and the reports name all pods.
func toPodItself(command string, report func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
			http.Error(w, "only connections from this pod are answered; run: kubectl qos "+command, http.StatusForbidden)
			return
		}

		answer, err := report(r)
		var data []byte
		if err == nil {
			data, err = json.Marshal(answer)
		}
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data) // fails only if the client is gone
	}
}

// httpError is an error with the status of the answer.
type httpError struct {
	error
	status int
}

// statusOf returns the status of the answer with an error. Most errors are about the history.
func statusOf(err error) int {
	known, is := errors.AsType[httpError](err)
	switch {
	case is:
		return known.status
	case errors.Is(err, history.ErrInvalid):
		return http.StatusBadRequest
	}
	return http.StatusConflict
}

// reporter makes the reports for kubectl. The queries of their requests have the fields of the requests of the node API.
type reporter struct{ node *node.Node }

// usage answers "kubectl qos top usage" with a qos.v1alpha1.WatchUsageResponse.
func (p reporter) usage(r *http.Request) (any, error) {
	sample, err := p.node.Usage(r.Context())
	if err != nil {
		return nil, httpError{fmt.Errorf("the usage cannot be measured now: %w", err), http.StatusServiceUnavailable}
	}
	data, err := protojson.Marshal(nodeapi.UsageOf(sample))
	return json.RawMessage(data), err
}

// recommend answers "kubectl qos recommend" with a qos.v1alpha1.RecommendResponse.
func (p reporter) recommend(r *http.Request) (any, error) {
	return p.node.Recommend(r.Context(), selectionOf(r.URL.Query()))
}

// blame answers "kubectl qos blame" with a qos.v1alpha1.BlameResponse.
func (p reporter) blame(r *http.Request) (any, error) {
	query := r.URL.Query()
	request := blame.Request{Selection: selectionOf(query)}
	if since := query.Get("since"); since != "" {
		var err error
		if request.Since, err = time.ParseDuration(since); err != nil {
			return nil, httpError{fmt.Errorf("since: %w", err), http.StatusBadRequest}
		}
	}
	return p.node.Blame(r.Context(), request)
}

// selectionOf returns the selection of containers in a query.
func selectionOf(query url.Values) history.Selection {
	return history.Selection{
		Namespace: query.Get("namespace"), Pod: query.Get("pod"), PodUID: query.Get("podUid"), Container: query.Get("container"),
	}
}
