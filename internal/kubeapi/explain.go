// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Outcome classifies the result of a request. It is a label of metrics.
type Outcome string

// Outcomes of requests. Each has a different remedy.
const (
	OK           Outcome = "ok"
	Forbidden    Outcome = "forbidden"    // no permission, or rejected by a policy
	Unauthorized Outcome = "unauthorized" // invalid credentials
	NoSuchKind   Outcome = "no_such_kind" // the CRD is not installed
	NotFound     Outcome = "not_found"    // the object does not exist
	Conflict     Outcome = "conflict"     // the object was modified concurrently
	Invalid      Outcome = "invalid"      // rejected by validation
	TooMany      Outcome = "too_many"     // the server is overloaded
	Unavailable  Outcome = "unavailable"  // no response, or a server error
	Failed       Outcome = "error"        // anything else
)

// Problem is an error that an administrator has to repair, and its message. It is retried slowly.
type Problem struct {
	Line string // names the remedy
	Err  error
}

// Error returns the message.
func (p *Problem) Error() string { return p.Line }

// Unwrap returns the error of the server.
func (p *Problem) Unwrap() error { return p.Err }

// OutcomeOf classifies the error of a request.
func OutcomeOf(err error) Outcome {
	code := statusCode(err)
	switch {
	case err == nil:
		return OK
	case code == 0:
		return withoutResponse(err)
	case code == http.StatusNotFound && apierrors.IsUnexpectedServerError(err):
		return NoSuchKind // the path is unknown, not the object
	case code >= http.StatusInternalServerError:
		return Unavailable
	}

	switch code {
	case http.StatusForbidden:
		return Forbidden
	case http.StatusUnauthorized:
		return Unauthorized
	case http.StatusNotFound:
		return NotFound
	case http.StatusConflict:
		return Conflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return Invalid
	case http.StatusTooManyRequests:
		return TooMany
	}
	return Failed
}

func withoutResponse(err error) Outcome {
	var timeout net.Error
	var request *url.Error
	if errors.As(err, &request) || errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Failed
}

// statusCode returns the HTTP status of a response of the API server; 0 for other errors.
func statusCode(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

// Message returns the server's message, without the text that client-go adds.
func Message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// Explain describes an error of a request in one line, with the remedy if there is one.
func Explain(err error) string {
	if problem, ok := errors.AsType[*Problem](err); ok {
		return problem.Line
	}

	switch OutcomeOf(err) {
	case OK:
		return ""
	case Forbidden:
		return explainForbidden(Message(err))
	case Unauthorized:
		return "the API server rejects the credentials: " + Message(err) +
			"; check that --kubeconfig belongs to this cluster and is still valid, or that the pod's service account exists"
	case NoSuchKind:
		return "the API server has no kind NodeQOSResources: kubectl apply -f deploy/kubernetes/crd.yaml"
	case Conflict:
		return "the object was modified concurrently, trying again: " + Message(err)
	case Invalid:
		return explainInvalid(err)
	case TooMany:
		return "the API server is overloaded, trying again later: " + Message(err)
	case Unavailable:
		return explainUnavailable(err)
	}
	return Message(err)
}

// OurKind is the kind of the objects that the shim publishes.
const OurKind = "NodeQOSResources"

// About adds the kind of an object, e.g. "event", to an error. Not every response of the API server names it.
type About struct {
	Kind string
	Err  error
}

// Error returns the message of the error.
func (a *About) Error() string { return a.Err.Error() }

// Unwrap returns the error of the server.
func (a *About) Unwrap() error { return a.Err }

func explainInvalid(err error) string {
	kind := "object"
	if about, ok := errors.AsType[*About](err); ok {
		kind = about.Kind
	}
	line := "the API server rejects the " + kind + ": " + Message(err)
	if kind == OurKind {
		line += "; is the CRD of this version? kubectl apply -f deploy/kubernetes/crd.yaml"
	}
	return line
}

// explainForbidden distinguishes a missing permission from the refusal of an admission policy, by the API server's message
// format.
func explainForbidden(text string) string {
	part := regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)"`).FindStringSubmatch(text)
	if part == nil {
		return "the API server rejects the request: " + text
	}

	user, verb, resource, group := part[1], part[2], part[3], part[4]
	if group != "" {
		resource += " (" + group + ")"
	}
	return fmt.Sprintf("%s may not %s %s: bind it to the ClusterRole of deploy/kubernetes/rbac.yaml: kubectl apply -f deploy/kubernetes/rbac.yaml",
		user, verb, resource)
}

func explainUnavailable(err error) string {
	if statusCode(err) != 0 {
		return "the API server failed: " + Message(err) + "; the node is not affected, trying again"
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Sprintf("%s is not trusted: %v; check the certificate authority in --kubeconfig", Server(err), certificate.Err)
	}
	return fmt.Sprintf("%s does not answer (%s); the node is not affected, trying again", Server(err), Cause(err))
}

// Server names the API server of a failed request, with its address if known.
func Server(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		if at, bad := url.Parse(request.URL); bad == nil && at.Host != "" {
			return "the API server at " + at.Scheme + "://" + at.Host
		}
	}
	return "the API server"
}

// Cause returns the server's message, or else the innermost error without the addresses and operations around it.
func Cause(err error) string {
	if statusCode(err) != 0 {
		return Message(err)
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
