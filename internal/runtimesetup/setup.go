// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimesetup checks whether a container runtime is set up for QoS classes. It changes nothing.
package runtimesetup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"syscall"
)

// Level is the severity of a finding.
type Level string

// Levels of findings.
const (
	// OK needs no action.
	OK Level = "ok"
	// Warning does not stop classes from working.
	Warning Level = "warning"
	// Unknown could not be determined.
	Unknown Level = "unknown"
	// Problem stops some or all classes from working.
	Problem Level = "problem"
)

// Finding is the result of one check.
type Finding struct {
	Level Level
	// Text has the state, and the remedy where one is needed.
	Text string
}

func (f Finding) String() string { return string(f.Level) + ": " + f.Text }

// Files are the host's files, by their paths on the host.
type Files interface {
	ReadFile(path string) ([]byte, error)
	Glob(pattern string) ([]string, error)
}

// Options select the runtime to check.
type Options struct {
	// Endpoint is the CRI endpoint: unix:///path, or only the path.
	Endpoint string
	// NRISocket is the path of the runtime's NRI socket.
	NRISocket string
	// HostRoot is the host's root directory; both paths are below it.
	HostRoot string
	// Files are the files below HostRoot.
	Files Files
}

// ErrEndpoint means that an endpoint is not a unix socket.
var ErrEndpoint = errors.New("not the address of a unix socket; write it like unix:///run/containerd/containerd.sock")

// Inspect checks a runtime, and returns findings in the order in which a user would fix them. Its only error is ErrEndpoint. It
// connects to the NRI socket and disconnects, which the runtime may log.
func Inspect(ctx context.Context, o Options) ([]Finding, error) {
	path, err := socketPath(o.Endpoint)
	if err != nil {
		return nil, err
	}

	runtime, err := ask(ctx, filepath.Join(o.HostRoot, path))
	if err != nil {
		text := fmt.Sprintf("the runtime does not answer on %s: %v; check that it runs, that this is its socket, and that you are root", o.Endpoint, err)
		return []Finding{{Problem, text}}, nil
	}

	findings := []Finding{{OK, fmt.Sprintf("the runtime is %s %s", runtime.name, runtime.version)}}
	findings = append(findings, rdtOverNRI(runtime), nriSocket(ctx, o, runtime))
	findings = append(findings, ownConfiguration(o.Files, runtime)...)
	return append(findings, ownAnnotations(runtime)...), nil
}

func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("runtime endpoint %q: %w", endpoint, ErrEndpoint)
	}
	return path, nil
}

// nriSocket reports whether NRI is enabled, which runtimes do not report over CRI.
func nriSocket(ctx context.Context, o Options, r runtime) Finding {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(o.HostRoot, o.NRISocket))
	switch {
	case err == nil:
		_ = conn.Close()
		return Finding{OK, "NRI is on: " + o.NRISocket + " answers"}
	case errors.Is(err, fs.ErrNotExist):
		return Finding{Problem, fmt.Sprintf("NRI is off, or its socket is not %s; %s", o.NRISocket, r.nriRemedy())}
	case errors.Is(err, syscall.ECONNREFUSED):
		return Finding{Problem, fmt.Sprintf("NRI is off: no process serves %s; %s", o.NRISocket, r.nriRemedy())}
	}
	return Finding{Unknown, fmt.Sprintf("whether NRI is on: %v; try it as root", err)}
}
