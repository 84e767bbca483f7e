// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// clientSocket is the environment variable with the path of a socket. If it is set, the test program is a client of
// this socket, and prints the status code of the response.
const clientSocket = "NODEAPI_TEST_CLIENT"

func TestMain(m *testing.M) {
	socket := os.Getenv(clientSocket)
	if socket == "" {
		os.Exit(m.Run())
	}
	conn, err := nodeclient.Connect(socket)
	if err == nil {
		_, err = qosv1alpha1.NewNodeQOSClient(conn).Status(context.Background(), &qosv1alpha1.StatusRequest{})
	}
	_, _ = fmt.Fprintln(os.Stdout, status.Code(err))
}

func TestOnlyTheOwnUserAndTheGroupAreAllowed(t *testing.T) {
	for _, test := range []struct {
		name   string
		peers  peers
		client process
		want   bool
	}{
		{"root", peers{uid: 7}, process{uid: 0, gid: 99}, true},
		{"the server's own user", peers{uid: 7}, process{uid: 7, gid: 99}, true},
		{"another user", peers{uid: 7}, process{uid: 8, gid: 7, groups: []uint32{7}}, false},
		{"a member of group 0 when there is no group", peers{uid: 7}, process{uid: 8, gid: 0}, false},
		{"the group as the primary one", peers{uid: 7, gid: 50, hasGroup: true}, process{uid: 8, gid: 50}, true},
		{"the group among others", peers{uid: 7, gid: 50, hasGroup: true}, process{uid: 8, gid: 8, groups: []uint32{1, 50}}, true},
		{"other groups", peers{uid: 7, gid: 50, hasGroup: true}, process{uid: 8, gid: 8, groups: []uint32{1, 51}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.peers.allow(test.client); got != test.want {
				t.Errorf("allow returns %t, want %t", got, test.want)
			}
		})
	}
}

// strangeInfo simulates the credentials of another kind of connection.
type strangeInfo struct{}

func (strangeInfo) AuthType() string { return "strange" }

func TestAPeerThatIsUnknownOrNotAllowedIsRefused(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"without a peer":         t.Context(),
		"with other credentials": peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.AuthInfo(strangeInfo{})}),
		"as another user":        peer.NewContext(t.Context(), &peer.Peer{AuthInfo: process{uid: 8}}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := (peers{uid: 7}).check(ctx); status.Code(err) != codes.PermissionDenied {
				t.Errorf("error is %v, want code PermissionDenied", err)
			}
		})
	}
}

func TestAGroupCanBeANameOrANumber(t *testing.T) {
	for _, group := range []string{"root", "0"} {
		if got, err := allowedPeers(group); err != nil || !got.hasGroup || got.gid != 0 {
			t.Errorf("group %q is %+v, %v", group, got, err)
		}
	}
	if _, err := allowedPeers("no-such-group"); err == nil || !strings.Contains(err.Error(), "no-such-group") {
		t.Errorf("error is %v, want one that names the group", err)
	}
}

// TestTheKernelReportsTheProcessesOfClients starts clients as other users and groups. All of them may open the socket.
func TestTheKernelReportsTheProcessesOfClients(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes as other users")
	}

	const gid = 4321
	dir := openDir(t)
	socket := serveTo(t, filepath.Join(dir, "qos.sock"), gid)
	must(t, os.Chmod(socket, 0o666))

	program := copyProgram(t, dir)
	for _, test := range []struct {
		name string
		who  syscall.Credential
		want codes.Code
	}{
		{"root", syscall.Credential{Uid: 0, Gid: 0}, codes.OK},
		{"a member by primary group", syscall.Credential{Uid: 1234, Gid: gid}, codes.OK},
		{"a member by another group", syscall.Credential{Uid: 1234, Gid: 1234, Groups: []uint32{77, gid}}, codes.OK},
		{"no member", syscall.Credential{Uid: 1234, Gid: 1234, Groups: []uint32{77}}, codes.PermissionDenied},
		{"no member of any group", syscall.Credential{Uid: 1234, Gid: 1234}, codes.PermissionDenied},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := child.Command(t, program)
			cmd.Env = []string{clientSocket + "=" + socket}
			cmd.SysProcAttr.Credential = &test.who
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != test.want.String() {
				t.Errorf("the response is %q, %v; want %s", got, err, test.want)
			}
		})
	}
}

// openDir returns a directory that all users can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, each := range []string{dir, filepath.Dir(dir)} {
		must(t, os.Chmod(each, 0o755))
	}
	return dir
}

func copyProgram(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	must(t, err)
	defer func() { _ = self.Close() }()
	path := filepath.Join(dir, "client")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)

	if _, err := io.Copy(file, self); err != nil {
		t.Fatal(err)
	}

	must(t, file.Close())

	return path
}

func serveTo(t *testing.T, socket string, gid int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	server := New(node.New(node.Options{Log: quiet}), Options{Socket: socket, Group: strconv.Itoa(gid), Log: quiet})
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-server.Ready()
	return socket
}

func TestTheKernelReportsTheGroupsOfThisProcess(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(t, err)
	defer func() { _, _ = syscall.Close(pair[0]), syscall.Close(pair[1]) }()
	client, err := credentialsOf(pair[0])
	must(t, err)

	groups, err := os.Getgroups()
	must(t, err)

	for _, gid := range groups {
		if !slices.Contains(client.groups, uint32(gid)) {
			t.Errorf("group %d is missing in %v", gid, client.groups)
		}
	}

	if int(client.uid) != os.Geteuid() || int(client.gid) != os.Getegid() {
		t.Errorf("the kernel reports %+v", client)
	}
}
