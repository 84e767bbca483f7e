// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeapi has the parts that the clients of the Kubernetes API share: credentials, informers, retries and
// explanations of errors.
package kubeapi

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoCredentials is returned when there is neither a kubeconfig nor a service account.
var ErrNoCredentials = errors.New("no API access: neither --kubeconfig nor a service account; pass one of them, or use --publish=device-plugin")

// These are the rate limits of one node. An idle shim makes no requests. The burst is large enough for a node to
// which all of its pods are assigned at once.
const (
	requestsPerSecond = 10
	requestBurst      = 30
)

// Config returns a client configuration. It reads the file kubeconfig or, if kubeconfig is empty, uses the pod's
// service account. It makes no request. Typed clients use protobuf. If the server is overloaded, clients return the
// error instead of retrying; callers retry with Retry.
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
		return nil, fmt.Errorf("%w (this is a pod, but it has no token: %w; is automountServiceAccountToken false?)", ErrNoCredentials, err)
	case err != nil:
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	return config, nil
}
