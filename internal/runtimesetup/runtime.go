// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
)

// containerd and crio are the names that these runtimes report over CRI.
const (
	containerd = "containerd"
	crio       = "cri-o"
)

const maxResponse = 4 << 20

// runtime is the state that a container runtime reports over CRI.
type runtime struct {
	name, version string
	// ignoreRDT and ignoreBlockIO are flags of containerd. They are nil if the runtime does not report them.
	ignoreRDT, ignoreBlockIO *bool
}

func ask(ctx context.Context, socket string) (runtime, error) {
	conn, err := unixsocket.Dial(socket, maxResponse)
	if err != nil {
		return runtime{}, err
	}
	defer conn.Close() //nolint:errcheck // an error of Close loses nothing

	client := runtimeapi.NewRuntimeServiceClient(conn)
	version, err := client.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return runtime{}, errors.New(status.Convert(err).Message())
	}

	r := runtime{name: version.GetRuntimeName(), version: version.GetRuntimeVersion()}
	// If the call of Status fails, the flags that readInfo reads stay unknown.
	if status, err := client.Status(ctx, &runtimeapi.StatusRequest{Verbose: true}); err == nil {
		r.readInfo(status.GetInfo())
	}
	return r, nil
}

// readInfo reads the flags from the runtime's verbose status. The format of the status differs between runtimes, and
// any part may be missing.
func (r *runtime) readInfo(info map[string]string) {
	var config struct {
		Containerd struct {
			IgnoreRDT     *bool `json:"ignoreRdtNotEnabledErrors"`
			IgnoreBlockIO *bool `json:"ignoreBlockIONotEnabledErrors"`
		} `json:"containerd"`
	}
	if json.Unmarshal([]byte(info["config"]), &config) == nil {
		r.ignoreRDT, r.ignoreBlockIO = config.Containerd.IgnoreRDT, config.Containerd.IgnoreBlockIO
	}
}

func (r runtime) family() string {
	switch r.name {
	case containerd:
		return containerd
	case crio, "crio":
		return crio
	}
	return ""
}

func (r runtime) nriRemedy() string {
	switch r.family() {
	case containerd:
		return `set disable = false under [plugins."io.containerd.nri.v1.nri"] in containerd's configuration, and restart containerd`
	case crio:
		return "set enable_nri = true under [crio.nri] in CRI-O's configuration, and restart CRI-O"
	}
	return "enable NRI in the runtime's configuration"
}

// rdtOverNRI reports whether the runtime supports RDT groups over NRI. This requires NRI v0.11.0. containerd includes
// it since version 2.2.1. CRI-O up to version 1.34 does not include it.
func rdtOverNRI(r runtime) Finding {
	unknown := Finding{Unknown, fmt.Sprintf("whether the NRI of %s %s can set RDT groups, which needs NRI v0.11.0; "+
		"after the plugin has registered, its status shows the NRI version", r.name, r.version)}
	has, err := version.ParseGeneric(r.version)
	if err != nil {
		return unknown
	}

	older := func(than string) bool { return has.LessThan(version.MustParseGeneric(than)) }
	switch {
	case r.family() == containerd && older("2.2.1"):
		return Finding{Problem, "NRI of containerd " + r.version + " cannot set RDT groups, so no RDT class is available; use containerd 2.2.1 or later"}
	case r.family() == containerd:
		return Finding{OK, "NRI of containerd " + r.version + " can set RDT groups"}
	case r.family() == crio && older("1.35.0"):
		return Finding{Problem, "NRI of CRI-O " + r.version + " cannot set RDT groups, so no RDT class is available; " +
			"use a CRI-O version with NRI v0.11.0 or later"}
	}
	return unknown
}

// ownAnnotations reports whether containerd leaves its annotations for RDT and block I/O to the plugin. Otherwise
// containerd itself refuses pods that have these annotations.
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
			findings = append(findings, Finding{Unknown, fmt.Sprintf("whether containerd refuses pods with %s annotations: "+
				"containerd does not report %s", flag.annotation, flag.name)})
		case *flag.value:
			findings = append(findings, Finding{OK, "containerd leaves " + flag.annotation + " annotations to the plugin"})
		default:
			findings = append(findings, Finding{Warning, fmt.Sprintf("containerd refuses pods with %s annotations by itself; "+
				"if you use these annotations, set %s = true in containerd's CRI configuration", flag.annotation, flag.name)})
		}
	}
	return findings
}
