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
	"path"
	"strings"
	"syscall"
)

// Level is the severity of a finding.
type Level string

// These are the levels of findings.
const (
	// OK means that no action is needed.
	OK Level = "ok"
	// Warning means that classes work in spite of the finding.
	Warning Level = "warning"
	// Unknown means that the check could not determine the state.
	Unknown Level = "unknown"
	// Problem means that some or all classes do not work.
	Problem Level = "problem"
)

// Finding is the result of one check.
type Finding struct {
	Level Level
	// Text states what was found. If a remedy is needed, Text also states the remedy.
	Text string
}

func (f Finding) String() string { return string(f.Level) + ": " + f.Text }

// Files reads the host's files. Its methods take paths as they are on the host.
type Files interface {
	ReadFile(path string) ([]byte, error)
	Glob(pattern string) ([]string, error)
}

// Options selects the runtime that Inspect checks.
type Options struct {
	// Endpoint is the CRI endpoint of the runtime. It is written as unix:///path, or only as the path.
	Endpoint string
	// NRISocket is the path of the runtime's NRI socket. If Inspect runs in a container, NRISocket and Endpoint are the
	// paths of the sockets in that container.
	NRISocket string
	// Files are the host's files.
	Files Files
	// Features asks an OCI runtime for its features. It is nil if Inspect runs in a container, because Inspect does not
	// execute programs of the host there.
	Features func(ctx context.Context, program string) ([]byte, error)
	// Properties are those that classes set.
	Properties []Property
}

// ErrEndpoint means that the endpoint is not a unix socket.
var ErrEndpoint = errors.New("not the address of a unix socket; write it like unix:///run/containerd/containerd.sock")

// Inspect checks a runtime. It returns findings in the order in which a user would fix them; its only error is
// ErrEndpoint. It connects to the NRI socket and disconnects at once, which the runtime may log.
func Inspect(ctx context.Context, o Options) ([]Finding, error) {
	path, err := socketPath(o.Endpoint)
	if err != nil {
		return nil, err
	}

	runtime, err := ask(ctx, path)
	if err != nil {
		text := fmt.Sprintf("the runtime does not answer on %s: %v; check that the runtime runs, that this is its socket, "+
			"and that you are root; in a container, mount the socket", o.Endpoint, err)
		return []Finding{{Problem, text}}, nil
	}

	findings := []Finding{{OK, fmt.Sprintf("the runtime is %s %s", runtime.name, runtime.version)}}
	findings = append(findings, rdtOverNRI(runtime), ociRuntime(ctx, o, runtime), nriSocket(ctx, o, runtime))
	findings = append(findings, properties(runtime, o.Properties)...)
	findings = append(findings, updates(runtime)...)
	findings = append(findings, ownConfiguration(o.Files, runtime)...)
	findings = append(findings, validator(o.Files, runtime)...)
	findings = append(findings, otherPlugins(o.Files)...)
	findings = append(findings, killRules(o.Files)...)
	return append(findings, ownAnnotations(runtime)...), nil
}

func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("runtime endpoint %q: %w", endpoint, ErrEndpoint)
	}
	return path, nil
}

// nriSocket reports whether NRI is enabled. It tries the NRI socket, because runtimes do not report over CRI whether
// NRI is enabled.
func nriSocket(ctx context.Context, o Options, r runtime) Finding {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", o.NRISocket)
	switch {
	case err == nil:
		_ = conn.Close()
		return Finding{OK, "NRI is on: " + o.NRISocket + " answers"}
	case errors.Is(err, fs.ErrNotExist):
		return Finding{Problem, fmt.Sprintf("NRI is off, or its socket is not %s; %s", o.NRISocket, r.nriRemedy())}
	case errors.Is(err, syscall.ECONNREFUSED):
		return Finding{Problem, fmt.Sprintf("NRI is off: no process serves %s; %s", o.NRISocket, r.nriRemedy())}
	}
	return Finding{Unknown, fmt.Sprintf("whether NRI is on: %v; run this check as root", err)}
}

// otherPlugins lists the NRI plugins that the runtime starts itself, from NRI's default directory. It cannot list
// plugins that connect to the NRI socket, because the runtime reports these only when it creates a container.
func otherPlugins(files Files) []Finding {
	const dir = "/opt/nri/plugins"
	names, err := files.Glob(dir + "/*")
	switch {
	case err != nil:
		return []Finding{{Unknown, fmt.Sprintf("which NRI plugins the runtime starts: %v", err)}}
	case len(names) == 0:
		return nil
	}

	for i := range names {
		names[i] = path.Base(names[i])
	}
	return []Finding{{Warning, fmt.Sprintf("the runtime starts other NRI plugins from %s: %s; "+
		"only one plugin can set each field of a container (docs/compatibility.md); "+
		"after a container was created, qos-nri-plugin status lists all NRI plugins", dir, strings.Join(names, ", "))}}
}
