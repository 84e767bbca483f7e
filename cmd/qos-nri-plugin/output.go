// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
)

// These constants are how long commands wait for the plugin. A command that changes classes waits longer, because the
// plugin waits for the runtime and the kernel.
const (
	answerTime     = 10 * time.Second
	changeTime     = 60 * time.Second
	completionTime = 2 * time.Second
)

// noticeTime is the time after which a command that changes classes reports that it waits.
const noticeTime = 3 * time.Second

var errNoAnswer = errors.New("qos-nri-plugin has not answered")

// apiOptions are the flags of commands that use the node API.
type apiOptions struct{ socket, format string }

func newAPIOptions(cmd *cobra.Command) *apiOptions {
	o := &apiOptions{}
	cmd.Flags().StringVar(&o.socket, "api-socket", agent.DefaultOptions().APISocket, "unix socket of the node API")
	cmd.Flags().StringVarP(&o.format, "output", "o", shell.Table, "one of "+strings.Join(shell.Formats(), ", "))
	// The call returns an error only if the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(shell.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return o
}

func atMostOne(argument string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return program.UsageError(cmd, fmt.Errorf("at most one %s, not %d", argument, len(args)))
		}
		return nil
	}
}

type use func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error

func (o *apiOptions) call(cmd *cobra.Command, timeout time.Duration, use use) error {
	if !slices.Contains(shell.Formats(), o.format) {
		return program.UsageError(cmd, fmt.Errorf("--output %q is not one of %s", o.format, strings.Join(shell.Formats(), ", ")))
	}

	ctx := cmd.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err := o.connect(ctx, use)
	if deadline, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(deadline) || errors.Is(err, errNoAnswer) {
		return fmt.Errorf("%w within %s", errNoAnswer, timeout)
	}
	return err
}

func (o *apiOptions) connect(ctx context.Context, use use) (err error) {
	if err := probe(ctx, o.socket); err != nil {
		return err
	}
	conn, err := nodeclient.Connect(o.socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	err = use(ctx, qosv1alpha1.NewNodeQOSClient(conn))
	if _, ok := ctx.Deadline(); ok && ctx.Err() == nil && status.Code(err) == codes.Canceled {
		return errNoAnswer // gRPC's server ends a call at its deadline, and may do so before ctx ends
	}
	return plainError(err)
}

// probe returns an error if a socket does not accept connections. The error has one line, unlike gRPC's error.
func probe(ctx context.Context, socket string) error {
	conn, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "unix", socket)
	if err == nil {
		return conn.Close()
	}

	remedy := "check that qos-nri-plugin runs; if it serves another socket, pass that socket with --api-socket"
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		remedy = "run this command as root, or as a member of the group in qos-nri-plugin's --api-socket-group"
	case errors.Is(err, syscall.EINVAL):
		remedy = "the path of a socket can have at most 107 bytes; pass a shorter path with --api-socket"
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno // the errno alone, because the message below includes the address
	}
	return fmt.Errorf("cannot connect to the node API on %s: %w; %s", socket, err, remedy)
}

func plainError(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}

	if s.Code() == codes.Unimplemented {
		return fmt.Errorf("qos-nri-plugin does not support this request; it may be older than this command: %s", s.Message())
	}
	return errors.New(s.Message())
}

func (o *apiOptions) print(cmd *cobra.Command, message proto.Message, table func() string) error {
	if o.format == shell.Table {
		_, err := fmt.Fprint(cmd.OutOrStdout(), table())
		return err
	}

	text, err := shell.Document(message, o.format)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}

// follow prints every message of a stream, with an empty line between two tables, until the user interrupts the command.
// The arguments `stream` and `err` come from the call that opens the stream. If `err` is not nil, follow returns `err`.
func follow[T any](o *apiOptions, cmd *cobra.Command, stream grpc.ServerStreamingClient[T], err error, write func(*T) error) error {
	for first := true; err == nil; first = false {
		var message *T
		if message, err = stream.Recv(); err != nil {
			break
		}
		if !first && o.format == shell.Table {
			fmt.Fprintln(cmd.OutOrStdout())
		}
		err = write(message)
	}

	if cmd.Context().Err() != nil {
		return nil
	}
	return err
}
