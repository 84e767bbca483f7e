// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// capable names the OCI runtimes that support all classes.
const capable = "runc 1.2 or later, or crun 1.18 or later"

// ociQuestion begins the finding about an OCI runtime whose abilities are unknown.
const ociQuestion = "whether the OCI runtime can set RDT groups and limit several disks (this requires " + capable + "): "

// Features executes the command "features" of an OCI runtime, and returns its output, a document that the OCI runtime
// specification defines. runc has this command since 1.1, and crun since 1.8.6.
func Features(ctx context.Context, program string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "features")
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second

	out, err := cmd.Output()
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}

// features is the part of the features document that classes depend on.
type features struct {
	Annotations map[string]any
	Linux       struct {
		IntelRdt struct{ Enabled *bool }
	}
}

// ociRuntime reports whether the default OCI runtime can create containers with every class.
func (i *inspection) ociRuntime(ctx context.Context) {
	switch {
	case i.oci == "":
		i.report(Unknown, ociQuestion+"%s does not report its OCI runtime", i.name)
		return
	case i.Features == nil:
		i.report(Unknown, ociQuestion+"in a container, this check executes no programs of the host; run on the node: %s --version", i.oci)
		return
	}

	out, err := i.Features(ctx, i.oci)
	var f features
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		i.report(Unknown, ociQuestion+"%[1]s features: %[2]v; run: %[1]s --version", i.oci, err)
		return
	}
	i.ociFeatures(f)
}

// ociFeatures evaluates the features document of the OCI runtime, including its version.
func (i *inspection) ociFeatures(f features) {
	name, since := "runc", "1.2.0"
	text, ok := f.Annotations["org.opencontainers.runc.version"].(string)
	if !ok {
		name, since = "crun", "1.18.0"
		text, ok = f.Annotations["run.oci.crun.version"].(string)
	}
	has, err := version.ParseGeneric(text)
	if !ok || err != nil {
		i.report(Unknown, ociQuestion+"%s reports no version of runc or crun", i.oci)
		return
	}

	which := fmt.Sprintf("the OCI runtime %s %s (%s)", name, text, i.oci)
	rdt := f.Linux.IntelRdt.Enabled
	switch {
	case has.LessThan(version.MustParseGeneric(since)):
		i.report(Problem, "%s writes the limits of all disks at once, and the kernel refuses that, so containers whose block I/O class "+
			"limits several disks cannot be created; use "+capable+", or set Direct: true in the class file", which)
	case name == "crun" && rdt == nil, rdt != nil && !*rdt:
		i.report(Warning, "%s cannot set RDT groups; "+withoutGroup+"; use "+capable, which)
	default:
		i.report(OK, "%s can set RDT groups and limit several disks", which)
	}
}
