// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// Core adapts client-go's fake clientset to the client interface of the shim.
func Core(client kubernetes.Interface) kubeapi.Core { return core{client.CoreV1()} }

type core struct{ client corev1client.CoreV1Interface }

func (c core) Pods(namespace string) kubeapi.Pods     { return pods{c.client.Pods(namespace)} }
func (c core) Events(namespace string) kubeapi.Events { return c.client.Events(namespace) }
func (c core) Nodes() kubeapi.Nodes                   { return c.client.Nodes() }

type pods struct{ corev1client.PodInterface }

// IsWatchListSemanticsUnSupported makes informers first list and then watch pods. The fake clientset does not support
// watches that begin with a list.
func (pods) IsWatchListSemanticsUnSupported() bool { return true }
