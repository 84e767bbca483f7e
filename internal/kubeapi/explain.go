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
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Outcome classifies the result of a request. Metrics use it as a label.
type Outcome string

// These are the outcomes of requests. Each of them has a different remedy.
const (
	OK           Outcome = "ok"
	Forbidden    Outcome = "forbidden"    // the credentials have no permission, or a policy rejected the request
	Unauthorized Outcome = "unauthorized" // the credentials are invalid
	NoSuchKind   Outcome = "no_such_kind" // the CRD is not installed
	NotFound     Outcome = "not_found"    // the object does not exist
	Conflict     Outcome = "conflict"     // the object was modified concurrently
	Invalid      Outcome = "invalid"      // validation rejected the object
	TooMany      Outcome = "too_many"     // the server is overloaded
	Unavailable  Outcome = "unavailable"  // there was no response, or a server error
	Failed       Outcome = "error"        // anything else
)

// Problem is an error that an administrator has to fix. Requests that fail with a Problem are retried slowly.
type Problem struct {
	Line string // the message; it names the remedy
	Err  error
}

func (p *Problem) Error() string { return p.Line }

func (p *Problem) Unwrap() error { return p.Err }

// OutcomeOf classifies the error of a request.
func OutcomeOf(err error) Outcome {
	code := StatusCode(err)
	switch {
	case err == nil:
		return OK
	case code == 0:
		return withoutResponse(err)
	case code == http.StatusNotFound && apierrors.IsUnexpectedServerError(err):
		return NoSuchKind // the server does not know the path: the whole kind is missing, not only the object
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

// StatusCode returns the HTTP status code if the error is a response of the API server. It returns 0 for other errors.
func StatusCode(err error) int {
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
		return "the API server has no kind NodeQOSResources; install its CRD with \"helm upgrade\" and crds.install=true, " +
			"or: kubectl apply -f deploy/kubernetes/crd.yaml"
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

// OurKind is the kind of the object that the shim publishes.
const OurKind = "NodeQOSResources"

// About wraps an error and adds the kind of the object, e.g. "event", because not every response of the API server
// names the kind.
type About struct {
	Kind string
	Err  error
}

func (a *About) Error() string { return a.Err.Error() }

func (a *About) Unwrap() error { return a.Err }

func explainInvalid(err error) string {
	kind := "object"
	if about, ok := errors.AsType[*About](err); ok {
		kind = about.Kind
	}
	line := "the API server rejects the " + kind + ": " + Message(err)
	if kind == OurKind {
		line += "; if the CRD is of another version, update it with \"helm upgrade\", or: kubectl apply -f deploy/kubernetes/crd.yaml"
	}
	return line
}

// explainForbidden distinguishes a missing permission from the rejection by an admission policy. It recognizes a
// missing permission by the format of the API server's message.
func explainForbidden(text string) string {
	part := regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)"`).FindStringSubmatch(text)
	if part == nil {
		return "the API server rejects the request: " + text
	}

	user, verb, resource, group := part[1], part[2], part[3], part[4]
	if group != "" {
		resource += " (" + group + ")"
	}
	return fmt.Sprintf("%s may not %s %s; bind this user to the ClusterRole of deploy/kubernetes/rbac.yaml with \"helm upgrade\", or: "+
		"kubectl apply -n qos-system -f deploy/kubernetes/rbac.yaml",
		user, verb, resource)
}

func explainUnavailable(err error) string {
	if StatusCode(err) != 0 {
		return "the API server failed: " + Message(err) + "; the node is not affected, trying again"
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Sprintf("%s is not trusted: %v; check the certificate authority in --kubeconfig", Server(err), certificate.Err)
	}
	return fmt.Sprintf("%s does not answer (%s); the node is not affected, trying again", Server(err), Cause(err))
}

// Server returns a name for the API server of a failed request. The name includes the server's address if the error contains it.
func Server(err error) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		if at, bad := url.Parse(request.URL); bad == nil && at.Host != "" {
			return "the API server at " + at.Scheme + "://" + at.Host
		}
	}
	return "the API server"
}

// Cause returns the server's message. If the server did not respond, Cause returns the innermost of the wrapped errors.
// The outer errors only add addresses and operations.
func Cause(err error) string {
	if StatusCode(err) != 0 {
		return Message(err)
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// Cut shortens a text that has more bytes than the limit. A shortened text ends with the given mark. Cut also replaces
// invalid UTF-8, because the API server rejects it.
func Cut(text string, limit int, mark string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
