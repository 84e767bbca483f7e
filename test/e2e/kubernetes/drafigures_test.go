// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// figurePods is the number of pods of each measurement.
const figurePods = 20

// TestDRAFigures measures the figures of docs/dra.md: the start of pods, and the memory of the driver and of the device
// plugins with the same pods. It fails if the driver writes to the API while pods without classes start and end, or if
// DRA takes too much memory.
func TestDRAFigures(t *testing.T) {
	skipNightly(t)
	n := ready(t)
	p := n.installDRA(t)
	n.setGold(t, p.programs, figurePods)
	n.slots(t, fmt.Sprint("blockio-gold=", figurePods))
	api := n.client(t)
	before := len(n.writesOf(t, "qos-dra-driver"))
	n.starts(t, api, "none", func(name string) string { return pod{name: name}.manifest() })
	if writes := len(n.writesOf(t, "qos-dra-driver")) - before; writes > 0 {
		t.Errorf("the driver has written %d times although no class was requested", writes)
	}
	gold := n.asks("gold")
	byLimits := func(name string) string { return pod{name: name, classes: gold}.manifest() }
	n.starts(t, api, "extended resource by DRA", byLimits)
	n.starts(t, api, "claim", func(name string) string {
		return claimed(name, "exactly: {deviceClassName: blockio.gold}", "main")
	})
	driver, publisher := residentMemory(t, "the driver", p.driver), residentMemory(t, "the publisher", p.shim)

	must(t, p.driver.end(syscall.SIGTERM))
	shim := n.startProcess(t, "device-plugins", "setpriv", "--bounding-set=-all", "--inh-caps=-all", n.program("qos-kubelet-shim"),
		"--node-name", n.name, "--publish=device-plugin", "--metrics-address=127.0.0.1:9423")
	n.offers(t, "blockio.gold", fmt.Sprint(figurePods), fmt.Sprint(figurePods))
	for range 2 { // the driver, too, has had two series of pods with classes
		n.starts(t, api, "device plugin", byLimits)
	}
	devicePlugins := residentMemory(t, "the shim with the device plugins", shim)
	if now, most := driver+publisher, 1.3*(devicePlugins+publisher); now > most {
		t.Errorf("with DRA, the processes have %.1f MiB resident, which is more than %.1f MiB, 1.3 times as much as with device plugins", now, most)
	}
}

// residentMemory logs the resident memory of a process, and returns it in MiB.
func residentMemory(t *testing.T, what string, p *process) float64 {
	t.Helper()
	status := statusOf(t, p)
	t.Logf("after %d pods, %s has %.1f MiB resident: %.1f MiB of its own, %.1f MiB of its program file", 2*figurePods, what,
		float64(status.VmRSS)/mib, float64(status.RssAnon)/mib, float64(status.RssFile)/mib)
	return float64(status.VmRSS) / mib
}

// starts runs pods one after another, logs the time from the creation of each until its container runs, and deletes it.
// `manifest` returns the manifest of a pod with a name.
func (n *node) starts(t *testing.T, api kubernetes.Interface, what string, manifest func(name string) string) {
	t.Helper()
	var took []time.Duration
	for i := range figurePods {
		took = append(took, n.startOf(t, api, manifest(fmt.Sprint("start-", i))))
	}
	slices.Sort(took)
	t.Logf("%s: %d pods start in %d ms (median) and %d ms (95th percentile)", what, figurePods,
		took[figurePods/2].Milliseconds(), took[figurePods*95/100-1].Milliseconds())
	n.kubectl(t, "delete", "pods,resourceclaims", "--all", "--wait", within)
}

// startOf creates the objects of a manifest, and returns the time from the creation of its pod until the container of the pod runs.
func (n *node) startOf(t *testing.T, api kubernetes.Interface, manifest string) time.Duration {
	t.Helper()
	pod := &corev1.Pod{}
	for _, document := range strings.Split(manifest, "\n---\n") {
		switch {
		case strings.Contains(document, "kind: Pod") || strings.Contains(document, `"kind":"Pod"`):
			must(t, yaml.Unmarshal([]byte(document), pod))
		case document != "":
			n.apply(t, document)
		}
	}
	pods := api.CoreV1().Pods("default")
	events, err := watchOf(t.Context(), pods, pod.Name)
	must(t, err)
	defer events.Stop()

	began := time.Now()
	_, err = pods.Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	for event := range events.ResultChan() {
		if seen, is := event.Object.(*corev1.Pod); is && containerRuns(seen) {
			return time.Since(began)
		}
	}
	t.Fatalf("the watch of pod %s has ended before its container ran", pod.Name)
	return 0
}
