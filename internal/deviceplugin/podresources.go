// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	podResourcesDirectory = "pod-resources"

	listTimeout = 5 * time.Second
	// maxAnswer is the largest answer of kubelet's that is taken, in bytes: that of kubelet's own client.
	maxAnswer = 16 << 20
)

// askKubelet asks which devices containers have.
func (p *Publisher) askKubelet(ctx context.Context) (*holdings, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	socket := filepath.Join(p.kubeletDir, podResourcesDirectory, kubeletSocket)
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	list, err := podresourcesv1.NewPodResourcesListerClient(conn).List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask kubelet on %s which devices it has allocated: %s", socket, status.Convert(err).Message())
	}
	return readHoldings(list), nil
}

// heard says in the log when kubelet begins and ends to answer what it has allocated.
func (p *Publisher) heard(err error) {
	switch {
	case err != nil && !p.deaf:
		p.log.Warn("kubelet does not say which devices it has allocated; what requests say is believed instead. "+
			"If kubelet runs, mount its pod-resources directory, beside device-plugins, into --kubelet-dir", "err", err)
	case err == nil && p.deaf:
		p.log.Info("kubelet says again which devices it has allocated")
	}
	p.deaf = err != nil
}
