// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaveWaiting makes an error of every answer that says to come back later. client-go would otherwise wait exactly that long and ask again,
// up to ten times, so that all nodes that were turned away together come back together.
func leaveWaiting(next http.RoundTripper) http.RoundTripper { return waitingLeft{next} }

type waitingLeft struct{ next http.RoundTripper }

// RoundTrip gives a *apierrors.StatusError for answers that have a Retry-After.
func (w waitingLeft) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(response.Header.Get("Retry-After"), 10, 32)
	if err != nil || (response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError) {
		return response, nil
	}
	return nil, comeBackLater(response.StatusCode, int32(seconds), said(response))
}

// said gives what an answer says for people, and closes its body.
func said(response *http.Response) string {
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer))
	if err != nil {
		return http.StatusText(response.StatusCode)
	}
	var status metav1.Status
	switch kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind {
	case "application/json":
		if json.Unmarshal(content, &status) == nil && status.Message != "" {
			return status.Message
		}
	case "text/plain":
		if text := strings.TrimSpace(string(content)); text != "" {
			return text
		}
	}
	return http.StatusText(response.StatusCode)
}

// longestAnswer is how much is read of an answer that says to come back later, in bytes.
const longestAnswer = 16 << 10

func comeBackLater(code int, seconds int32, message string) error {
	reason := metav1.StatusReasonServiceUnavailable
	if code == http.StatusTooManyRequests {
		reason = metav1.StatusReasonTooManyRequests
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
		Message: fmt.Sprintf("%s; not before %d s", strings.TrimRight(message, "."), seconds),
		Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
	}}
}
