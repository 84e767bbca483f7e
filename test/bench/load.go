// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const classFile = `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  classes:
  - {name: bounded, capacity: 1000}
  - {name: heavy}
  - {name: light}
  blockio:
    Classes:
      bounded: [{Weight: "400"}]
      heavy: [{Weight: "1000"}]
      light: [{Weight: "10"}]
- name: qos.noderesource.dev/profile
  linux:
    classes:
      six: {memory: {min: 10%, low: 20%, high: 80%, swapMax: 1Gi, oomGroup: false}, cpu: {burst: 50%}}
`

// monitoringFile is the part of a class file that lets the plugin monitor all containers.
const monitoringFile = `- name: k8s.io/rdt
  rdt: {monitoring: containers}
`

// metricsAddress is where the plugin that monitors containers serves its metrics.
const metricsAddress = "127.0.0.1:19420"

// requestKey is the annotation with which the pods of the benchmark request a class.
const requestKey = "container.qos.noderesource.dev/main"

// requests has the requests of pods for their containers: none, a class, and a class of six properties.
func requests() []string { return []string{"", "blockio=bounded", "qos.noderesource.dev/profile=six"} }

// pod returns the n-th pod of a Deployment.
func pod(n int, request string) nriruntime.PodConfig {
	name := fmt.Sprintf("web-frontend-7c9d8f6b5d-%05d", n)
	annotations := map[string]string{
		"kubectl.kubernetes.io/restartedAt":                "2026-01-02T03:04:05Z",
		"kubernetes.io/config.seen":                        "2026-01-02T03:04:05.678901234Z",
		"kubernetes.io/config.source":                      "api",
		"prometheus.io/scrape":                             "true",
		"prometheus.io/port":                               "8080",
		"checksum/config":                                  strings.Repeat("0123456789abcdef", 4),
		"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat(`{"name":"setting","value":"of the pod"},`, 50),
	}

	if request != "" {
		annotations[requestKey] = request
	}

	return nriruntime.PodConfig{
		Name: name, Namespace: "production", Annotations: annotations,
		Labels: map[string]string{
			"app.kubernetes.io/name": "web-frontend", "app.kubernetes.io/instance": "web-frontend-blue",
			"app.kubernetes.io/version": "1.2.3", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7c9d8f6b5d",
			"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "production",
		},
	}
}

// container returns a container whose NRI message has a size of about 10 KB. The container has the environment variables
// that the kubelet sets in a namespace with 30 Services.
func container() nriruntime.ContainerConfig {
	config := nriruntime.ContainerConfig{
		Name: "main",
		Args: []string{"/usr/local/bin/server", "--config=/etc/server/config.yaml", "--listen=:8080", "--log-format=json"},
		Annotations: map[string]string{
			"io.kubernetes.container.hash":                     "5f3c2a1b",
			"io.kubernetes.container.restartCount":             "0",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
			"io.kubernetes.container.ports":                    `[{"name":"http","containerPort":8080,"protocol":"TCP"}]`,
		},
		Labels: map[string]string{
			"io.kubernetes.container.name": "main", "io.kubernetes.pod.namespace": "production",
			"io.kubernetes.pod.uid": "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "io.cri-containerd.kind": "container",
		},
		Resources: &api.LinuxResources{
			Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(512)), Quota: api.Int64(int64(50000)), Period: api.UInt64(uint64(100000))},
			Memory: &api.LinuxMemory{Limit: api.Int64(int64(256 << 20))},
		},
	}

	for i := range 30 {
		service := fmt.Sprintf("SERVICE_NUMBER_%02d", i)
		config.Env = append(config.Env,
			service+"_SERVICE_HOST=10.96.14.21", service+"_SERVICE_PORT=8080", service+"_PORT=tcp://10.96.14.21:8080",
			service+"_PORT_8080_TCP_PROTO=tcp")
	}

	for i := range 20 {
		config.Mounts = append(config.Mounts, &api.Mount{
			Destination: fmt.Sprintf("/etc/server/part-%02d", i), Type: "bind", Options: []string{"rbind", "rprivate", "ro"},
			Source: fmt.Sprintf("/var/lib/kubelet/pods/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/volumes/kubernetes.io~configmap/part-%02d", i),
		})
	}

	return config
}
