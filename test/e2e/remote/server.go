// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote lets tests run programs, read the kernel's state and use sockets on another machine.
package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// service is the name under which package rpc serves the server's methods. The first line that a client sends on a connection is this
// name, or the path of a unix socket to which the server then connects the client.
const service = "Machine"

// Program is a program that runs until it is ended. Its output is appended to the file Log.
type Program struct {
	Name, Log string
	Args      []string
}

// Signal is sent to a program that was started.
type Signal struct {
	Program string
	Signal  syscall.Signal
}

// Result has the output of a program that has ended, and the reason if the program has failed.
type Result struct{ Output, Failure string }

// server executes the requests of clients. net/rpc calls its exported methods.
type server struct {
	mu       sync.Mutex
	programs map[string]*running
}

type running struct {
	command *exec.Cmd
	ended   chan struct{}
}

// Serve serves clients until the listener is closed.
func Serve(listener net.Listener) error {
	handlers := rpc.NewServer()
	if err := handlers.RegisterName(service, &server{programs: map[string]*running{}}); err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("wait for clients: %w", err)
		}
		go serve(handlers, connection)
	}
}

// serve serves one connection until it ends.
func serve(handlers *rpc.Server, connection net.Conn) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	target, err := reader.ReadString('\n')
	if err != nil {
		return
	}

	buffered := struct {
		io.Reader
		io.Writer
		io.Closer
	}{reader, connection, connection}

	target = strings.TrimSuffix(target, "\n")
	if target == service {
		handlers.ServeConn(buffered)
		return
	}

	socket, err := net.Dial("unix", target)
	if err != nil {
		return
	}
	defer socket.Close()
	go func() {
		_, _ = io.Copy(socket, buffered)
		_ = socket.Close()
	}()

	_, _ = io.Copy(connection, socket) // ends when one side closes the connection
}

// Run runs a program to its end.
func (*server) Run(args []string, result *Result) error {
	output, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	result.Output = string(output)
	if err != nil {
		result.Failure = err.Error()
	}
	return nil
}

// Start starts a program.
func (s *server) Start(program Program, _ *struct{}) error {
	log, err := os.OpenFile(program.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(program.Args[0], program.Args[1:]...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return err
	}

	started := &running{command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // how it ended is in its log
		close(started.ended)
	}()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs[program.Name] = started
	return nil
}

// End sends a signal to a program that was started, and waits for its end.
func (s *server) End(signal Signal, _ *struct{}) error {
	s.mu.Lock()
	program := s.programs[signal.Program]
	s.mu.Unlock()
	if program == nil {
		return fmt.Errorf("%s was not started", signal.Program)
	}
	if err := program.command.Process.Signal(signal.Signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-program.ended
	return nil
}

// Kill kills a program whose command line begins with `commandLine`.
func (*server) Kill(commandLine string, _ *struct{}) error { return Kill(commandLine) }

// Kill kills a program of this machine whose command line begins with `commandLine`.
func Kill(commandLine string) error {
	pid, err := PIDOf(commandLine)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// PIDOf returns the PID of a program of this machine whose command line begins with `commandLine`.
func PIDOf(commandLine string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(strings.ReplaceAll(string(line), "\x00", " "), commandLine) {
			return strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	return 0, fmt.Errorf("%s does not run", commandLine)
}

// Kernel reads the kernel's state of live pods and containers.
func (*server) Kernel(live invariant.Live, kernel *invariant.Kernel) error {
	var err error
	*kernel, err = invariant.KernelOf(hostfs.Root("/"), live)
	return err
}
