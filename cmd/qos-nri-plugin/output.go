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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/agent"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
)

// How long commands wait for the plugin. A change waits for the runtime and the kernel, too.
const (
	answerTime     = 10 * time.Second
	changeTime     = 60 * time.Second
	completionTime = 2 * time.Second
)

// apiOptions are the flags of commands that ask the running plugin.
type apiOptions struct{ socket, format string }

func newAPIOptions(cmd *cobra.Command) *apiOptions {
	o := &apiOptions{}
	cmd.Flags().StringVar(&o.socket, "api-socket", agent.DefaultOptions().APISocket, "unix socket of the node API")
	cmd.Flags().StringVarP(&o.format, "output", "o", string(shell.Table), "one of "+strings.Join(shell.Formats(), ", "))
	// The error says that there is no such flag, and there is.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(shell.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return o
}

// call connects to the plugin for one use.
func (o *apiOptions) call(cmd *cobra.Command, use func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error) (err error) {
	if !slices.Contains(shell.Formats(), o.format) {
		return program.UsageError(cmd, fmt.Errorf("--output %q is not one of %s", o.format, strings.Join(shell.Formats(), ", ")))
	}
	return o.connect(cmd.Context(), use)
}

func (o *apiOptions) connect(ctx context.Context, use func(ctx context.Context, client qosv1alpha1.NodeQOSClient) error) (err error) {
	if err := probe(ctx, o.socket); err != nil {
		return err
	}
	conn, err := nodeclient.Connect(o.socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return plainError(use(ctx, qosv1alpha1.NewNodeQOSClient(conn)))
}

// probe says in one line what is wrong with a socket, before gRPC says it in many.
func probe(ctx context.Context, socket string) error {
	conn, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "unix", socket)
	if err == nil {
		return conn.Close()
	}
	remedy := "is qos-nri-plugin running? if it has another socket, name it with --api-socket"
	var errno syscall.Errno
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		remedy = "use it as root, or as a member of the group that --api-socket-group of qos-nri-plugin names"
	case errors.Is(err, syscall.EINVAL):
		remedy = "a socket's path has at most 107 bytes"
	}
	if errors.As(err, &errno) {
		err = errno // the address is in the line already
	}
	return fmt.Errorf("no node API on %s: %w; %s", socket, err, remedy)
}

// plainError takes gRPC's words off an error; those of the plugin say what is wrong.
func plainError(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch s.Code() {
	case codes.DeadlineExceeded:
		return fmt.Errorf("not done in time: %s", s.Message())
	case codes.Unimplemented:
		return fmt.Errorf("the plugin does not know this request; is it older than this command? %s", s.Message())
	default:
		return errors.New(s.Message())
	}
}

// print writes an answer in the chosen format.
func (o *apiOptions) print(cmd *cobra.Command, message proto.Message, table func() string) error {
	var text string
	var err error
	if o.format == string(shell.Table) {
		text = table()
	} else {
		text, err = shell.Document(message, shell.Format(o.format))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), text)
	return err
}

// follow prints every message of a stream until the command is interrupted. Tables are an empty line apart.
func (o *apiOptions) follow(cmd *cobra.Command, next func() (proto.Message, string, error)) error {
	for first := true; ; first = false {
		message, table, err := next()
		if cmd.Context().Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !first {
			table = "\n" + table
		}
		if err := o.print(cmd, message, func() string { return table }); err != nil {
			return err
		}
	}
}
