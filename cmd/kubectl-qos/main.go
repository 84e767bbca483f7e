// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-qos is the kubectl plugin "kubectl qos" for the QoS-class resources of nodes and pods.
package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/qos-nri/qos-nri-plugin/internal/kubectlqos"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// version is set by the linker for releases (-X main.version=v0.1.0).
var version string

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(program.Main(kubectlqos.NewRootCommand(version, streams)))
}
