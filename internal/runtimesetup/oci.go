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
func ociRuntime(ctx context.Context, o Options, r runtime) Finding {
	const question = "whether the OCI runtime can set RDT groups and limit several disks"
	switch {
	case r.oci == "":
		return Finding{Unknown, fmt.Sprintf("%s (this requires %s): %s does not report its OCI runtime", question, capable, r.name)}
	case o.Features == nil:
		return Finding{Unknown, fmt.Sprintf("%s (this requires %s): in a container, this check executes no programs of the host; "+
			"run on the node: %s --version", question, capable, r.oci)}
	}

	out, err := o.Features(ctx, r.oci)
	var f features
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		return Finding{Unknown, fmt.Sprintf("%s (this requires %s): %s features: %v; run: %s --version", question, capable, r.oci, err, r.oci)}
	}
	return f.finding(r.oci, question)
}

// finding evaluates the features document of an OCI runtime, including the runtime's version.
func (f features) finding(program, question string) Finding {
	name, since := "runc", "1.2.0"
	text, ok := f.Annotations["org.opencontainers.runc.version"].(string)
	if !ok {
		name, since = "crun", "1.18.0"
		text, ok = f.Annotations["run.oci.crun.version"].(string)
	}
	has, err := version.ParseGeneric(text)
	if !ok || err != nil {
		return Finding{Unknown, fmt.Sprintf("%s (this requires %s): %s reports no version of runc or crun", question, capable, program)}
	}

	which := fmt.Sprintf("the OCI runtime %s %s (%s)", name, text, program)
	rdt := f.Linux.IntelRdt.Enabled
	switch {
	case has.LessThan(version.MustParseGeneric(since)):
		return Finding{Problem, which + " writes the limits of all disks at once, and the kernel refuses that, so containers whose block I/O class " +
			"limits several disks cannot be created; use " + capable + ", or set Direct: true in the class file"}
	case name == "crun" && rdt == nil, rdt != nil && !*rdt:
		return Finding{Warning, which + " cannot set RDT groups; " + withoutGroup + "; use " + capable}
	}
	return Finding{OK, which + " can set RDT groups and limit several disks"}
}
