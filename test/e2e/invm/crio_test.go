// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import "fmt"

// crioRuntime returns CRI-O with runc and, on machines that have it, crun. CRI-O starts no pause containers, because the
// pods of these tests do not need them.
func crioRuntime() *containerRuntime {
	const storage, runroot = "/var/lib/containers/storage", "/run/containers/storage"
	const policy = "/etc/containers/policy.json"
	manager, monitor := "cgroupfs", "pod"
	if bySystemd() {
		manager, monitor = "systemd", "system.slice"
	}

	config := fmt.Sprintf(crioConfig, manager, monitor)
	if hasCrun() {
		config += fmt.Sprintf(crioCrunHandler, crunProgram, monitor)
	}

	return &containerRuntime{
		name:    "cri-o",
		version: "1.37.",
		nri:     "v0.12.",
		socket:  "/run/crio/crio.sock",
		files: map[string]string{
			"/etc/crio/crio.conf": config,
			policy:                `{"default": [{"type": "insecureAcceptAnything"}]}`,
		},
		command: []string{"crio"},
		importImage: []string{
			"copyimg", "--root", storage, "--runroot", runroot, "--storage-driver", "overlay", "--signature-policy", policy,
			"--image-name", image, "--import-from", "docker-archive:/share/image.tar",
		},
		cgroup: "crio-%s",
		scope:  "crio-%s.scope",
		findings: []string{
			"runtime: ok: the runtime is cri-o 1.",
			"runtime: ok: NRI of CRI-O 1.",
			"runtime: ok: the OCI runtime runc 1.",
			"runtime: ok: NRI is on: /run/nri/nri.sock answers",
			"runtime: warning: CRI-O VERSION can hang when an NRI plugin requests an update of a container",
			"runtime: ok: cri-o has no RDT or block I/O configuration of its own",
			"runtime: ok: NRI's default validator is on",
			"runtime: warning: CRI-O refuses pods with rdt.resources.beta.kubernetes.io annotations",
			"runtime: ok: CRI-O leaves blockio.resources.beta.kubernetes.io annotations to the plugin",
		},
	}
}

const crioConfig = `
[crio]
root = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
storage_driver = "overlay"
[crio.api]
listen = "/run/crio/crio.sock"
[crio.runtime]
cgroup_manager = "%s"
default_runtime = "runc"
pinns_path = "/opt/pinns"
# A class wins over these limits.
default_ulimits = ["nofile=2048:2048"]
# There is no iptables.
disable_hostport_mapping = true
irqbalance_config_restore_file = "disable"
# Its default is a profile that this machine does not have.
apparmor_profile = "unconfined"
[crio.runtime.runtimes.runc]
runtime_path = "/opt/runc"
runtime_root = "/run/runc"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "%s"
[crio.image]
pause_image = "localhost/workload:1"
pause_command = ""
signature_policy = "/etc/containers/policy.json"
[crio.nri]
enable_nri = true
nri_listen = "/run/nri/nri.sock"
# The emulated machine is slow; what comes too late would go on without the plugin.
nri_plugin_registration_timeout = "60s"
nri_plugin_request_timeout = "20s"
[crio.nri.default_validator]
nri_enable_default_validator = true
`
