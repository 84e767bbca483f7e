// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks a running agent, and checks each time that other pods still get their classes. The attackers are
// the neighbours of docs/security.md: pods, other NRI plugins, clients on the node, the runtime and the kernel. The attacks
// are bounded, so that they run with all other tests.
package hostile
