// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

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
	// `ignoreRDT` and `ignoreBlockIO` are flags of containerd. They are nil if the runtime does not report them.
	ignoreRDT, ignoreBlockIO *bool
	// own has CRI-O's settings rdt_config_file and blockio_config_file by name. It is nil if the runtime does not report them.
	own map[string]string
	// oci is the program of the default OCI runtime, a path or a name. It is empty if the runtime does not report it.
	oci string
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

// readInfo reads the runtime's configuration from its verbose status. This is the configuration in effect, with drop-in files
// and flags. The format of the status differs between runtimes, and any part may be missing.
func (r *runtime) readInfo(info map[string]string) {
	var config struct {
		Containerd struct {
			IgnoreRDT     *bool  `json:"ignoreRdtNotEnabledErrors"`
			IgnoreBlockIO *bool  `json:"ignoreBlockIONotEnabledErrors"`
			Default       string `json:"defaultRuntimeName"`
			Runtimes      map[string]struct {
				Type    string                      `json:"runtimeType"`
				Options struct{ BinaryName string } `json:"options"`
			} `json:"runtimes"`
		} `json:"containerd"`
		CRIO *struct {
			RdtConfigFile, BlockIOConfigFile, DefaultRuntime string
			Runtimes                                         map[string]struct{ RuntimePath string }
		} `json:"crio"`
	}
	if json.Unmarshal([]byte(info["config"]), &config) != nil {
		return
	}

	r.ignoreRDT, r.ignoreBlockIO = config.Containerd.IgnoreRDT, config.Containerd.IgnoreBlockIO
	if handler, ok := config.Containerd.Runtimes[config.Containerd.Default]; ok && handler.Type == runcShim {
		r.oci = cmp.Or(handler.Options.BinaryName, "runc")
	}
	if own := config.CRIO; own != nil {
		r.own = map[string]string{rdtFileKey: own.RdtConfigFile, blockIOFileKey: own.BlockIOConfigFile}
		r.oci = own.Runtimes[own.DefaultRuntime].RuntimePath
	}
}

// runcShim is the runtime_type in containerd's configuration for runc, and for programs with the command line of runc.
const runcShim = "io.containerd.runc.v2"

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

// withoutGroup describes what happens if the runtime does not put containers into RDT groups.
const withoutGroup = "the plugin moves containers before their first instruction, but exec and probe processes start in " +
	"the root group, and are moved within 15 s"

// rdtOverNRI reports whether the runtime supports RDT groups over NRI. This requires NRI v0.11.0, which is part of
// containerd since version 2.2.1 and of CRI-O since version 1.35.
func (i *inspection) rdtOverNRI() {
	name, since := "containerd", "2.2.1"
	if i.family() == crio {
		name, since = "CRI-O", "1.35"
	}
	has, err := version.ParseGeneric(i.version)
	switch {
	case err != nil || i.family() == "":
		i.report(Unknown, "whether the NRI of %s %s can set RDT groups, which needs NRI v0.11.0; "+
			"after the plugin has registered, qos-nri-plugin status shows the NRI version", i.name, i.version)
	case has.LessThan(version.MustParseGeneric(since)):
		i.report(Warning, "NRI of %[1]s %[2]s cannot set RDT groups; "+withoutGroup+"; use %[1]s %[3]s or later", name, i.version, since)
	default:
		i.report(OK, "NRI of %s %s can set RDT groups", name, i.version)
	}
}

// These are the annotations with which pods request classes of the runtime's own configuration.
const (
	rdtAnnotations     = "rdt.resources.beta.kubernetes.io"
	blockIOAnnotations = "blockio.resources.beta.kubernetes.io"
)

// ownAnnotations reports whether the runtime refuses pods with its annotations for RDT and block I/O, or leaves these
// annotations to the plugin.
func (i *inspection) ownAnnotations() {
	switch i.family() {
	case containerd:
		i.containerdAnnotations("ignore_rdt_not_enabled_errors", rdtAnnotations, i.ignoreRDT)
		i.containerdAnnotations("ignore_blockio_not_enabled_errors", blockIOAnnotations, i.ignoreBlockIO)
	case crio:
		i.crioAnnotations()
	}
}

// crioAnnotations follows the source code of CRI-O 1.34 to 1.37. Without rdt_config_file, internal/config/rdt refuses a
// container that requests an RDT class. Without blockio_config_file, specSetBlockioClass ignores the request.
func (i *inspection) crioAnnotations() {
	if i.own[rdtFileKey] == "" {
		i.report(Warning, "CRI-O refuses pods with "+rdtAnnotations+" annotations; if you use these "+
			"annotations, replace them (see docs/requests.md), because CRI-O has no setting to ignore them")
	}
	if i.own != nil && i.own[blockIOFileKey] == "" {
		i.report(OK, "CRI-O leaves "+blockIOAnnotations+" annotations to the plugin")
	}
}

// containerdAnnotations evaluates the flag of containerd for some annotations. It is nil if it is unknown.
func (i *inspection) containerdAnnotations(name, annotations string, ignored *bool) {
	switch {
	case ignored == nil:
		i.report(Unknown, "whether containerd refuses pods with %s annotations: containerd does not report %s", annotations, name)
	case *ignored:
		i.report(OK, "containerd leaves %s annotations to the plugin", annotations)
	default:
		i.report(Warning, "containerd refuses pods with %s annotations; if you use these annotations, set %s = true in containerd's CRI configuration",
			annotations, name)
	}
}
