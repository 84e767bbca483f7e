// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package calibrate measures how fast a disk is, and makes from it the parameters of iocost. It measures what the kernel's
// tools/cgroup/iocost_coef_gen.py measures with fio, and the latencies like iocost-params of resctl-bench.
package calibrate
