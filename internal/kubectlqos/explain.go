// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// errForbidden is the error for a missing permission. Other errors wrap it.
var errForbidden = errors.New("a right is missing")

// explain converts an error of the API server, or of the connection to the server, to one line that has the remedy.
func explain(err error) error {
	switch kubeapi.OutcomeOf(err) {
	case kubeapi.OK:
		return nil
	case kubeapi.NoSuchKind:
		return errors.New("this cluster has no kind NodeQOSResources: install the plugin and its CRD: kubectl apply -k deploy/kubernetes")
	case kubeapi.Forbidden:
		return fmt.Errorf("%w: %s; list your permissions with: kubectl auth can-i --list", errForbidden, kubeapi.Message(err))
	case kubeapi.Unauthorized:
		return fmt.Errorf("the API server does not accept the credentials: %s; log in again, or choose others with --kubeconfig or --context", kubeapi.Message(err))
	case kubeapi.Unavailable:
		return fmt.Errorf("%s does not answer: %s; check the cluster with: kubectl config current-context", kubeapi.Server(err), kubeapi.Cause(err))
	case kubeapi.TooMany:
		return fmt.Errorf("the API server has no time for it now: %s; try again later", kubeapi.Message(err))
	case kubeapi.NotFound, kubeapi.Conflict, kubeapi.Invalid, kubeapi.Failed:
	}
	return errors.New(kubeapi.Message(err))
}
