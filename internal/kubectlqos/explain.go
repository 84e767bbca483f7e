// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// errForbidden is wrapped by errors about missing rights.
var errForbidden = errors.New("a right is missing")

// explain makes one line, with the remedy, of an error of the API server or of the connection to it.
func explain(err error) error {
	switch kubeapi.OutcomeOf(err) {
	case kubeapi.OK:
		return nil
	case kubeapi.NoSuchKind:
		return errors.New("this cluster has no kind NodeQOSResources: install the plugin and its CRD: kubectl apply -k deploy/kubernetes")
	case kubeapi.Forbidden:
		return fmt.Errorf("%w: %s; see what you may do with: kubectl auth can-i --list", errForbidden, said(err))
	case kubeapi.Unauthorized:
		return fmt.Errorf("the API server does not accept the credentials: %s; log in again, or name others with --kubeconfig or --context", said(err))
	case kubeapi.Unavailable:
		return fmt.Errorf("%s does not answer: %s; is it the cluster that you mean? see: kubectl config current-context", server(err), cause(err))
	case kubeapi.TooMany:
		return fmt.Errorf("the API server has no time for it now: %s; try again later", said(err))
	case kubeapi.NotFound, kubeapi.Conflict, kubeapi.Invalid, kubeapi.Failed:
	}
	return errors.New(said(err))
}

// said is the message of the server, without client-go's additions.
func said(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

func server(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		if at, bad := url.Parse(request.URL); bad == nil && at.Host != "" {
			return "the API server at " + at.Scheme + "://" + at.Host
		}
	}
	return "the API server"
}

// cause is the innermost error, without the address and the operation.
func cause(err error) string {
	if text := said(err); text != err.Error() {
		return text
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
