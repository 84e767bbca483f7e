// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runtimesetup finds out whether a container runtime is set up for QoS classes, without changing anything.
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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Level says what a finding means to a user.
type Level string

// Levels of findings.
const (
	// OK is as it should be.
	OK Level = "ok"
	// Warning is worth knowing, and does not stop classes from working.
	Warning Level = "warning"
	// Unknown could not be found out.
	Unknown Level = "unknown"
	// Problem stops classes, or some of them, from working.
	Problem Level = "problem"
)

// Finding is one thing that was looked at.
type Finding struct {
	Level Level
	// Text is a sentence that names the remedy where one is needed.
	Text string
}

func (f Finding) String() string { return string(f.Level) + ": " + f.Text }

// Files are the host's files, by their paths on the host.
type Files interface {
	ReadFile(path string) ([]byte, error)
	Glob(pattern string) ([]string, error)
}

// Options say which runtime to look at.
type Options struct {
	// Endpoint of the CRI: unix:///path, or the path alone.
	Endpoint string
	// NRISocket is the path of the runtime's NRI socket.
	NRISocket string
	// HostRoot is where the host's root directory is; both paths are below it.
	HostRoot string
	Files    Files
}

// ErrEndpoint says that an endpoint is not a unix socket.
var ErrEndpoint = errors.New("not the address of a unix socket; write it like unix:///run/containerd/containerd.sock")

// Inspect looks at a runtime. What it finds is in the order in which a user would put it right. The error is ErrEndpoint.
// A connection to the NRI socket is made and closed at once, which the runtime may note in its log.
func Inspect(ctx context.Context, o Options) ([]Finding, error) {
	path, err := socketPath(o.Endpoint)
	if err != nil {
		return nil, err
	}
	runtime, err := ask(ctx, filepath.Join(o.HostRoot, path))
	if err != nil {
		text := fmt.Sprintf("the runtime does not answer on %s: %v; is it running, is this its socket, and are you root?", o.Endpoint, err)
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

// nriSocket says whether NRI is on, which no runtime tells over CRI.
func nriSocket(ctx context.Context, o Options, r runtime) Finding {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(o.HostRoot, o.NRISocket))
	switch {
	case err == nil:
		_ = conn.Close()
		return Finding{OK, "NRI is on: " + o.NRISocket + " answers"}
	case errors.Is(err, fs.ErrNotExist):
		return Finding{Problem, fmt.Sprintf("NRI is off, or its socket is not %s; %s", o.NRISocket, r.nriRemedy())}
	case errors.Is(err, syscall.ECONNREFUSED):
		return Finding{Problem, fmt.Sprintf("NRI is off: nobody answers on %s any more; %s", o.NRISocket, r.nriRemedy())}
	}
	return Finding{Unknown, fmt.Sprintf("whether NRI is on: %v; try it as root", err)}
}

// ownAnnotations warns those who use the runtime's own annotations, which the runtime reads before the plugin does.
func ownAnnotations(r runtime) []Finding {
	if r.family() != containerd {
		return nil
	}
	var findings []Finding
	for _, flag := range []struct {
		name, annotation string
		value            *bool
	}{
		{"ignore_rdt_not_enabled_errors", "rdt.resources.beta.kubernetes.io", r.ignoreRDT},
		{"ignore_blockio_not_enabled_errors", "blockio.resources.beta.kubernetes.io", r.ignoreBlockIO},
	} {
		switch {
		case flag.value == nil:
			findings = append(findings, Finding{Unknown, fmt.Sprintf("whether containerd refuses pods with %s annotations, "+
				"since it does not tell %s", flag.annotation, flag.name)})
		case *flag.value:
			findings = append(findings, Finding{OK, "containerd leaves " + flag.annotation + " annotations to the plugin"})
		default:
			findings = append(findings, Finding{Warning, fmt.Sprintf("containerd refuses pods with %s annotations by itself; "+
				"if you use those, set %s = true in its CRI configuration", flag.annotation, flag.name)})
		}
	}
	return findings
}

// ask gets from the runtime what it tells over CRI.
func ask(ctx context.Context, socket string) (runtime, error) {
	conn, err := connect(socket)
	if err != nil {
		return runtime{}, err
	}
	client := runtimeapi.NewRuntimeServiceClient(conn)
	version, err := client.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return runtime{}, errors.Join(plain(err), conn.Close())
	}
	r := runtime{name: version.GetRuntimeName(), version: version.GetRuntimeVersion()}
	// What Status would have told is unknown then, and reported as that.
	if status, err := client.Status(ctx, &runtimeapi.StatusRequest{Verbose: true}); err == nil {
		r.readInfo(status.GetInfo())
	}
	return r, conn.Close()
}
