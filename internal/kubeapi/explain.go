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

// Outcome is what came of asking the API server, in a word that is good for a metric's label.
type Outcome string

// Outcomes, by what their remedy is.
const (
	OK           Outcome = "ok"
	Forbidden    Outcome = "forbidden"    // permission is missing, or a policy refuses it
	Unauthorized Outcome = "unauthorized" // the credentials are not accepted
	NoSuchKind   Outcome = "no_such_kind" // the CRD is not installed
	NotFound     Outcome = "not_found"    // the object does not exist
	Conflict     Outcome = "conflict"     // somebody else changed it at the same time
	Invalid      Outcome = "invalid"      // the server takes no object like this
	TooMany      Outcome = "too_many"     // the server is overloaded and says so
	Unavailable  Outcome = "unavailable"  // the server does not answer, or answers that it cannot
	Failed       Outcome = "error"        // anything else
)

// Problem is an error that a caller knows more about than the API server said: Line says it for people and names the remedy, which is a
// person's to take. Loop waits long before it looks again.
type Problem struct {
	Line string
	Err  error
}

// Error is the line.
func (p *Problem) Error() string { return p.Line }

// Unwrap gives what the server said.
func (p *Problem) Unwrap() error { return p.Err }

// OutcomeOf says what came of a request that gave err.
func OutcomeOf(err error) Outcome {
	switch code := statusCode(err); {
	case err == nil:
		return OK
	case code == 0:
		return withoutAnswer(err)
	case code == http.StatusNotFound && apierrors.IsUnexpectedServerError(err):
		// It is not the answer of a registry that has no such object, but of a server that knows no such path.
		return NoSuchKind
	case code >= http.StatusInternalServerError:
		return Unavailable
	default:
		return byCode(code)
	}
}

func byCode(code int) Outcome {
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

func withoutAnswer(err error) Outcome {
	var timeout net.Error
	var request *url.Error
	if errors.As(err, &request) || errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Failed
}

// statusCode is the HTTP status that the API server answered with; 0 when err is nil or not its answer.
func statusCode(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// Explain makes one line for people of what the API server, or the way there, gave as an error. It names the remedy, where there is one.
func Explain(err error) string {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem.Line
	}
	switch OutcomeOf(err) {
	case OK:
		return ""
	case Forbidden:
		return explainForbidden(message(err))
	case Unauthorized:
		return "the API server does not accept the credentials: " + message(err) +
			"; see whether --kubeconfig is of this cluster and still valid, or the pod's service account exists"
	case NoSuchKind:
		return "the API server knows no NodeQOSResources: kubectl apply -f deploy/kubernetes/crd.yaml"
	case Conflict:
		return "somebody else changed it at the same time, trying again: " + message(err)
	case Invalid:
		return explainInvalid(err)
	case TooMany:
		return "the API server has no time for it now, trying again later: " + message(err)
	case Unavailable:
		return explainUnavailable(err)
	}
	return message(err)
}

// OurKind is the kind of object that a CRD of this project defines.
const OurKind = "NodeQOSResources"

// About is an error with the kind of object that was asked for, e.g. "event": not every answer of the API server says it.
type About struct {
	Kind string
	Err  error
}

// Error is that of what it is about.
func (a *About) Error() string { return a.Err.Error() }

// Unwrap gives what the server said.
func (a *About) Unwrap() error { return a.Err }

func explainInvalid(err error) string {
	about, kind := (*About)(nil), "object"
	if errors.As(err, &about) {
		kind = about.Kind
	}
	line := "the API server does not take the " + kind + ": " + message(err)
	if kind == OurKind {
		line += "; is the CRD of this version? kubectl apply -f deploy/kubernetes/crd.yaml"
	}
	return line
}

// message is what the server said, without client-go's words about the request around it.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// explainForbidden tells missing permission, whose message is made by the API server's forbiddenMessage, from what an admission policy said.
func explainForbidden(text string) string {
	part := regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)"`).FindStringSubmatch(text)
	if part == nil {
		return "the API server refuses it: " + text
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
		return "the API server cannot do it now: " + message(err) + "; what is on the node stays as it is, trying again"
	}
	var request *url.Error
	server := "the API server"
	if errors.As(err, &request) {
		if at, bad := url.Parse(request.URL); bad == nil {
			server += " at " + at.Scheme + "://" + at.Host
		}
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return fmt.Sprintf("%s is not the one that is trusted: %v; see the certificate authority in --kubeconfig", server, certificate.Err)
	}
	return fmt.Sprintf("%s does not answer (%s); what is on the node stays as it is, trying again", server, cause(err))
}

// cause is the innermost error, so that the line does not tell addresses and operations twice.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
