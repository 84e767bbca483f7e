// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"net/http"
	"strconv"

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
	_ = response.Body.Close()
	return nil, comeBackLater(response.StatusCode, int32(seconds))
}

func comeBackLater(code int, seconds int32) error {
	reason := metav1.StatusReasonServiceUnavailable
	if code == http.StatusTooManyRequests {
		reason = metav1.StatusReasonTooManyRequests
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, //nolint:gosec // an HTTP status has three digits
		Message: fmt.Sprintf("%s; come back in %d s", http.StatusText(code), seconds),
		Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
	}}
}
