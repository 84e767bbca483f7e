// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarded is the connection to a node that forwards a port. Its stream of data leads to `serve`, which gets the request. If
// `refusal` is not empty, the node cannot connect to the port.
type forwarded struct {
	t       *testing.T
	refusal string
	serve   func(*http.Request) string
	created []string
}

func (f *forwarded) CreateStream(headers http.Header) (httpstream.Stream, error) {
	kind := headers.Get(corev1.StreamType)
	f.created = append(f.created, kind+" "+headers.Get(corev1.PortHeader))
	client, node := net.Pipe()
	if kind == corev1.StreamTypeError {
		_ = node.Close()
		return stream{Conn: client, text: strings.NewReader(f.refusal), headers: headers}, nil
	}
	go func() {
		defer node.Close()
		request, err := http.ReadRequest(bufio.NewReader(node))
		if err == nil && f.refusal == "" {
			fmt.Fprint(node, f.serve(request))
		}
	}()
	return stream{Conn: client, headers: headers}, nil
}

func (f *forwarded) Close() error                       { return nil }
func (f *forwarded) CloseChan() <-chan bool             { return nil }
func (f *forwarded) SetIdleTimeout(time.Duration)       {}
func (f *forwarded) RemoveStreams(...httpstream.Stream) {}

type stream struct {
	net.Conn
	text    io.Reader // replaces what the Conn reads, unless it is nil
	headers http.Header
}

func (s stream) Read(data []byte) (int, error) {
	if s.text != nil {
		return s.text.Read(data)
	}
	return s.Conn.Read(data)
}

func (s stream) Reset() error         { return s.Close() }
func (s stream) Headers() http.Header { return s.headers }
func (s stream) Identifier() uint32   { return 0 }

func TestARequestIsSentOverAForwardedConnection(t *testing.T) {
	for _, c := range []struct{ name, refusal, response, want, err string }{
		{"an answer", "", "HTTP/1.1 200 OK\r\n\r\nGET /usage close", "GET /usage close", ""},
		{"another status", "", "HTTP/1.1 503 x\r\n\r\nthe usage cannot\nbe measured\n", "", "the usage cannot; be measured"},
		{"a status without a text", "", "HTTP/1.1 404 Not Found\r\n\r\n", "", "404 Not Found"},
		{"nothing listens", "failed to connect to localhost:9420:\nconnection refused\n", "", "", "failed to connect to localhost:9420:; connection refused"},
		{"the pod ends", "", "", "", "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := &forwarded{t: t, refusal: c.refusal, serve: func(r *http.Request) string {
				if r.Method != http.MethodGet || r.URL.Path != "/usage" || !r.Close {
					t.Errorf("the request is %s %s", r.Method, r.URL)
				}
				return c.response
			}}
			body, err := get(t.Context(), node, 9420, "/usage")
			if got := fmt.Sprint(node.created); got != "[error 9420 data 9420]" {
				t.Errorf("the streams are %s", got)
			}
			if text := fmt.Sprint(err); c.err == "" && (err != nil || string(body) != c.want) || c.err != "" && text != c.err {
				t.Errorf("got %q, %v", body, err)
			}
		})
	}
}
