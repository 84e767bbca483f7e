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

// errForbidden is in the chain of errors about missing rights.
var errForbidden = errors.New("a right is missing")

// explain makes one line for people, with the remedy, of what the API server, or the way there, gave as an error; nil of nil.
func explain(err error) error {
	switch kubeapi.OutcomeOf(err) {
	case kubeapi.OK:
		return nil
	case kubeapi.NoSuchKind:
		return errors.New("this cluster knows no NodeQOSResources: install the plugin and its CRD: kubectl apply -k deploy/kubernetes")
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

// said is what the server said, without client-go's words around it.
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

// cause is the innermost error, so that addresses and operations are not told twice.
func cause(err error) string {
	if text := said(err); text != err.Error() {
		return text
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
