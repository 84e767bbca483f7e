// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// execute runs a command in a container, and returns what it writes to its standard output. If the command fails, the error is a
// commandError.
type execute func(ctx context.Context, pod *corev1.Pod, container string, command ...string) ([]byte, error)

// commandError is what a failed command has written to its standard error.
type commandError struct{ text string }

func (e commandError) Error() string { return e.text }

// newExecute returns the function that runs commands as "kubectl exec" does.
func newExecute(config *rest.Config, core kubernetes.Interface) execute {
	return func(ctx context.Context, pod *corev1.Pod, container string, command ...string) ([]byte, error) {
		url := core.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
		executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
		if err != nil {
			return nil, err
		}

		var out, errs bytes.Buffer
		err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
		var refused *httpstream.UpgradeFailureError
		var failed exec.CodeExitError
		switch {
		case errors.As(err, &refused):
			err = refused.Cause // the API server's error; UpgradeFailureError has no method Unwrap
		case errors.As(err, &failed):
			err = commandError{cmp.Or(strings.TrimPrefix(program.OneLine(errs.String()), "Error: "), failed.Error())}
		}
		return out.Bytes(), err
	}
}
