// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeapi has the parts that the clients of the Kubernetes API share: credentials, informers, retries and
// explanations of errors.
package kubeapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoCredentials is returned when there is neither a kubeconfig nor a service account.
var ErrNoCredentials = errors.New("no credentials for the Kubernetes API: there is neither --kubeconfig nor a service account; " +
	"pass --kubeconfig, run in a pod with a service account, or use --publish=device-plugin")

// requestsPerSecond and requestBurst limit the requests of one node to the API server. requestBurst is large enough
// for the moment when all pods of a node start at once.
const (
	requestsPerSecond = 10
	requestBurst      = 30
)

// Config returns a client configuration for the file kubeconfig or, if `kubeconfig` is empty, for the pod's service
// account. It makes no request. Typed clients use protobuf. A client does not retry a request that an overloaded server
// rejects; the callers of the client use Retry.
func Config(kubeconfig, userAgent string) (*rest.Config, error) {
	config, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}

	config.UserAgent = userAgent
	config.QPS, config.Burst = requestsPerSecond, requestBurst
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Wrap(disableClientRetry)
	return config, nil
}

func load(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read --kubeconfig %s: %w", kubeconfig, err)
		}
		return config, nil
	}

	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, ErrNoCredentials
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w (this pod has no service account token: %w; check that automountServiceAccountToken is not false)", ErrNoCredentials, err)
	case err != nil:
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	return config, nil
}

// maxMessage limits how many bytes of an error response are read if the response has a Retry-After header.
const maxMessage = 16 << 10

// disableClientRetry turns every error response with a Retry-After header into a Go error. Otherwise client-go would
// sleep exactly as long as the header requests, and retry up to ten times. All nodes that the server rejected at the
// same time would then also retry at the same time.
func disableClientRetry(next http.RoundTripper) http.RoundTripper { return noRetry{next} }

type noRetry struct{ next http.RoundTripper }

// RoundTrip returns a *apierrors.StatusError if the response has status 429 or 5xx and a Retry-After header.
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
