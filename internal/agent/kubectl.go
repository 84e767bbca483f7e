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

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
)

// toPodItself serves a command of kubectl. It answers only connections from the plugin's own pod. The node makes such
// a connection when the API server permits a user to forward a port of the pod. Any other pod could connect without a
// permission, and the answers name all pods.
func toPodItself(command string, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
			http.Error(w, "only connections from this pod are answered; run: kubectl qos "+command, http.StatusForbidden)
			return
		}
		serve(w, r)
	}
}

// serveBlame answers "kubectl qos blame" with the JSON form of qos.v1alpha1.BlameResponse. The query has the fields of BlameRequest.
func serveBlame(n *node.Node, w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	request := blame.Request{Selection: selectionOf(query)}
	if since := query.Get("since"); since != "" {
		var err error
		if request.Since, err = time.ParseDuration(since); err != nil {
			http.Error(w, fmt.Sprintf("since: %v", err), http.StatusBadRequest)
			return
		}
	}

	report, err := n.Blame(r.Context(), request)
	if err != nil {
		refuse(w, err)
		return
	}
	data, err := json.Marshal(report)
	answer(w, data, err)
}

// refuse writes the error of a request about the history.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusConflict
	if errors.Is(err, history.ErrInvalid) {
		code = http.StatusBadRequest
	}
	http.Error(w, err.Error(), code)
}

// serveRecommend answers "kubectl qos recommend" with the JSON form of qos.v1alpha1.RecommendResponse. The query has the fields of
// RecommendRequest.
func serveRecommend(n *node.Node, w http.ResponseWriter, r *http.Request) {
	report, err := n.Recommend(r.Context(), selectionOf(r.URL.Query()))
	if err != nil {
		refuse(w, err)
		return
	}
	data, err := json.Marshal(report)
	answer(w, data, err)
}

// selectionOf returns the selection of containers in a query.
func selectionOf(query url.Values) history.Selection {
	return history.Selection{
		Namespace: query.Get("namespace"), Pod: query.Get("pod"), PodUID: query.Get("podUid"), Container: query.Get("container"),
	}
}

// answer writes a message in its JSON form. `err` is the error of encoding it.
func answer(w http.ResponseWriter, data []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // fails only if the client is gone
}
