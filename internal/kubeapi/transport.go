// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"cmp"
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

// maxMessage limits how much of a response with Retry-After is read, in bytes.
const maxMessage = 16 << 10

// disableClientRetry turns every response with Retry-After into an error. Otherwise client-go would sleep exactly as
// long as the response requests, and retry up to ten times. All nodes that the server rejected at the same time would
// then retry at the same time.
func disableClientRetry(next http.RoundTripper) http.RoundTripper { return noRetry{next} }

type noRetry struct{ next http.RoundTripper }

// RoundTrip returns a *apierrors.StatusError if the response has Retry-After.
func (n noRetry) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(response.Header.Get("Retry-After"), 10, 32)
	if err != nil || (response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError) {
		return response, nil
	}

	defer func() { _ = response.Body.Close() }()
	return nil, retryAfter(response.StatusCode, int32(seconds), messageOf(response))
}

func messageOf(response *http.Response) string {
	fallback := http.StatusText(response.StatusCode)
	content, err := io.ReadAll(io.LimitReader(response.Body, maxMessage))
	if err != nil {
		return fallback
	}

	var status metav1.Status
	switch kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind {
	case "application/json":
		_ = json.Unmarshal(content, &status)
	case "text/plain":
		status.Message = strings.TrimSpace(string(content))
	}
	return cmp.Or(status.Message, fallback)
}

func retryAfter(code int, seconds int32, message string) error {
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
