// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/version"
)

// Names that runtimes give themselves.
const (
	containerd = "containerd"
	crio       = "cri-o"
)

// runtime is what a container runtime tells of itself.
type runtime struct {
	name, version string
	// ignoreRDT and ignoreBlockIO are flags of containerd; nil when it does not tell.
	ignoreRDT, ignoreBlockIO *bool
}

func (r runtime) family() string {
	switch r.name {
	case containerd:
		return containerd
	case "cri-o", "crio":
		return crio
	}
	return ""
}

// readInfo takes what is of use from the verbose status. Its form is each runtime's own, so anything can be missing.
func (r *runtime) readInfo(info map[string]string) {
	var config struct {
		Containerd struct {
			IgnoreRDT     *bool `json:"ignoreRdtNotEnabledErrors"`
			IgnoreBlockIO *bool `json:"ignoreBlockIONotEnabledErrors"`
		} `json:"containerd"`
	}
	if json.Unmarshal([]byte(info["config"]), &config) != nil {
		return
	}
	r.ignoreRDT, r.ignoreBlockIO = config.Containerd.IgnoreRDT, config.Containerd.IgnoreBlockIO
}

func (r runtime) nriRemedy() string {
	switch r.family() {
	case containerd:
		return `set disable = false under [plugins."io.containerd.nri.v1.nri"] in containerd's configuration, and restart it`
	case crio:
		return "set enable_nri = true under [crio.nri] in CRI-O's configuration, and restart it"
	}
	return "turn NRI on in the runtime's configuration"
}

// rdtOverNRI says whether the runtime can put containers into resctrl groups on a plugin's word, which is in NRI from
// v0.11.0: in containerd from 2.2.1 on, in CRI-O not up to 1.34.
func rdtOverNRI(r runtime) Finding {
	unknown := Finding{Unknown, fmt.Sprintf("whether NRI of %s %s can set RDT groups (it can from NRI v0.11.0); "+
		"once the plugin has registered, its status shows the NRI version", r.name, r.version)}
	has, err := version.ParseGeneric(r.version)
	if err != nil {
		return unknown
	}
	switch {
	case r.family() == containerd && has.LessThan(version.MustParseGeneric("2.2.1")):
		return Finding{Problem, "NRI of containerd " + r.version + " cannot set RDT groups, so no RDT class can be given; use 2.2.1 or later"}
	case r.family() == containerd:
		return Finding{OK, "NRI of containerd " + r.version + " can set RDT groups"}
	case r.family() == crio && has.LessThan(version.MustParseGeneric("1.35.0")):
		return Finding{Problem, "NRI of CRI-O " + r.version + " cannot set RDT groups, so no RDT class can be given; " +
			"use one with NRI v0.11.0 or later"}
	}
	return unknown
}

func connect(socket string) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return grpc.NewClient("passthrough:///localhost", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// plain takes gRPC's words off an error.
func plain(err error) error {
	if s, ok := status.FromError(err); ok {
		return errors.New(s.Message())
	}
	return err
}
