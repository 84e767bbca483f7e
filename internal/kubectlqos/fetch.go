// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// fetch gets a path from the HTTP server on a port of a pod. An error is a podError if it comes from the pod or its node, and not from the
// API server.
type fetch func(ctx context.Context, pod *corev1.Pod, port int32, path string) ([]byte, error)

// podError is a text from a pod or its node: the answer of the server, or why the server cannot be reached.
type podError struct{ text string }

func (e podError) Error() string { return e.text }

// newFetch returns a function that reaches the pod as "kubectl port-forward" does. It opens no port on this machine.
func newFetch(config *rest.Config, core kubernetes.Interface) fetch {
	return func(ctx context.Context, pod *corev1.Pod, port int32, path string) ([]byte, error) {
		url := core.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("portforward").URL()
		dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
		if err != nil {
			return nil, err
		}
		connection, err := dial(ctx, dialer)
		var refused *httpstream.UpgradeFailureError
		if errors.As(err, &refused) {
			return nil, refused.Cause // the API server's error; UpgradeFailureError has no method Unwrap
		}
		if err != nil {
			return nil, err
		}
		defer func() { _ = connection.Close() }()
		defer context.AfterFunc(ctx, func() { _ = connection.Close() })()

		return get(ctx, connection, port, path)
	}
}

// dial connects, or returns when ctx ends. The dialer has no context, so its goroutine can outlive the call, until the
// operating system ends the attempt.
func dial(ctx context.Context, dialer httpstream.Dialer) (httpstream.Connection, error) {
	var connection httpstream.Connection
	done := make(chan error)
	go func() {
		made, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		connection = made
		select {
		case done <- err:
		case <-ctx.Done():
			if err == nil {
				_ = made.Close()
			}
		}
	}()

	select {
	case err := <-done:
		return connection, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// get sends a request over the streams of one forwarded connection. If the node cannot connect to the port, it writes
// the reason to the stream for errors.
func get(ctx context.Context, connection httpstream.Connection, port int32, path string) ([]byte, error) {
	streams := map[string]httpstream.Stream{}
	for _, kind := range []string{corev1.StreamTypeError, corev1.StreamTypeData} { // the node expects this order
		headers := http.Header{}
		headers.Set(corev1.StreamType, kind)
		headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
		headers.Set(corev1.PortForwardRequestIDHeader, "0")
		stream, err := connection.CreateStream(headers)
		if err != nil {
			return nil, err
		}
		streams[kind] = stream
	}
	failure, data := streams[corev1.StreamTypeError], streams[corev1.StreamTypeData]
	_ = failure.Close() // closes only the direction to the node

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Close = true
	if err := request.Write(data); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(data), request)
	if err != nil {
		text, _ := io.ReadAll(failure)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, podError{cmp.Or(program.OneLine(string(text)), err.Error())}
	}
	defer func() { _ = response.Body.Close() }()

	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = podError{cmp.Or(program.OneLine(string(body)), response.Status)}
	}
	return body, err
}
