// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks a running agent, and checks after each attack that other pods still get their classes. The
// attackers are those that docs/security.md lists: pods, other NRI plugins, clients on the node, the runtime and the
// kernel. The attacks are bounded, so that they run with all other tests.
package hostile
