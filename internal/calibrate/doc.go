// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package calibrate measures how fast a disk is, and computes the parameters of iocost: the cost model and the quality
// of service (io.cost.model and io.cost.qos). It measures the values of the model like the kernel's
// tools/cgroup/iocost_coef_gen.py, which uses fio, and the latencies like iocost-params of resctl-bench.
package calibrate
