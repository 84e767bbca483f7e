// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeapi reaches the Kubernetes API: with which credentials, what its errors mean to people, and when to try again.
package kubeapi

import (
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoCredentials says that nothing names an API server and what to be there.
var ErrNoCredentials = errors.New("no API access: neither --kubeconfig nor a service account; give one of them, or go without what needs the API")

// What one node may ask of the API server. A shim in its rest asks for nothing; a burst is a node that gets all of its pods at once.
const (
	requestsPerSecond = 10
	requestBurst      = 30
)

// Config says how to reach the API server: as the file kubeconfig has it, or, when that is "", by the pod's service account. Without
// either it is ErrNoCredentials. Nothing is asked of the server yet.
//
// Typed clients speak protobuf by it. Clients made of it do not wait and try again by themselves when the server is overloaded: they give
// an error, after which Loop waits.
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
	config.Wrap(leaveWaiting)
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
