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

	i := &inspection{Options: o}
	if i.runtime, err = ask(ctx, path); err != nil {
		i.report(Problem, "the runtime does not answer on %s: %v; check that the runtime runs, that this is its socket, "+
			"and that you are root; in a container, mount the socket", o.Endpoint, err)
		return i.findings, nil
	}

	i.report(OK, "the runtime is %s %s", i.name, i.version)
	i.rdtOverNRI()
	i.ociRuntime(ctx)
	i.nriSocket(ctx)
	i.properties()
	i.updates()
	i.ownConfiguration()
	i.validator()
	i.otherPlugins()
	i.killRules()
	i.ownAnnotations()
	return i.findings, nil
}

// inspection collects the findings about a runtime.
type inspection struct {
	Options
	runtime
	findings []Finding
}

func (i *inspection) report(level Level, format string, args ...any) {
	i.findings = append(i.findings, Finding{level, fmt.Sprintf(format, args...)})
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
func (i *inspection) nriSocket(ctx context.Context) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", i.NRISocket)
	switch {
	case err == nil:
		_ = conn.Close()
		i.report(OK, "NRI is on: %s answers", i.NRISocket)
	case errors.Is(err, fs.ErrNotExist):
		i.report(Problem, "NRI is off, or its socket is not %s; %s", i.NRISocket, i.nriRemedy())
	case errors.Is(err, syscall.ECONNREFUSED):
		i.report(Problem, "NRI is off: no process serves %s; %s", i.NRISocket, i.nriRemedy())
	default:
		i.report(Unknown, "whether NRI is on: %v; run this check as root", err)
	}
}

// otherPlugins lists the NRI plugins that the runtime starts itself, from NRI's default directory. It cannot list
// plugins that connect to the NRI socket, because the runtime reports these only when it creates a container.
func (i *inspection) otherPlugins() {
	const dir = "/opt/nri/plugins"
	names, err := i.Files.Glob(dir + "/*")
	if err != nil {
		i.report(Unknown, "which NRI plugins the runtime starts: %v", err)
	}
	if len(names) == 0 {
		return
	}

	for n := range names {
		names[n] = path.Base(names[n])
	}
	i.report(Warning, "the runtime starts other NRI plugins from %s: %s; "+
		"only one plugin can set each field of a container (docs/compatibility.md); "+
		"after a container was created, qos-nri-plugin status lists all NRI plugins", dir, strings.Join(names, ", "))
}
