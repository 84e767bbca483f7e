// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// statusError converts the error of a change into a gRPC error with the code that the API documents. Its message is one line.
func statusError(err error) error {
	return status.Error(codeOf(err), strings.ReplaceAll(err.Error(), "\n", "; "))
}

func codeOf(err error) codes.Code {
	for _, known := range []struct {
		err  error
		code codes.Code
	}{
		{state.ErrNotFound, codes.NotFound},
		{state.ErrNotRunning, codes.FailedPrecondition},
		{state.ErrImmutable, codes.FailedPrecondition},
		{classes.ErrUnavailable, codes.FailedPrecondition},
		{classes.ErrClassFull, codes.ResourceExhausted},
		{classes.ErrUnknownResource, codes.InvalidArgument},
		{classes.ErrUnknownClass, codes.InvalidArgument},
		{classes.ErrContradiction, codes.InvalidArgument},
		{classes.ErrBadRequest, codes.InvalidArgument},
		{state.ErrNotConnected, codes.Unavailable},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return codes.Internal
}
