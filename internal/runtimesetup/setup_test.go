// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
)

const (
	endpoint      = "/run/cri.sock"
	nriSocketPath = "/run/nri.sock"
	// config is a part of the CRI configuration that containerd reports.
	config = `{"containerd":{"snapshotter":"overlayfs","ignoreBlockIONotEnabledErrors":false,"ignoreRdtNotEnabledErrors":true,` +
		`"defaultRuntimeName":"runc","runtimes":{"runc":{"runtimeType":"io.containerd.runc.v2","options":{"BinaryName":"/opt/runc","SystemdCgroup":true}}}},"enableSelinux":false}`
)

// crioReports returns a CRI-O that reports a part of its configuration.
func crioReports(version, rdtFile, blockIOFile string) fakeRuntime {
	text := fmt.Sprintf(`{"sandboxImage":"pause","crio":{"SeccompUseDefaultWhenEmpty":true,"DefaultRuntime":"crun","RdtConfigFile":%q,"BlockIOConfigFile":%q,`+
		`"Runtimes":{"crun":{"RuntimeConfigPath":"","RuntimePath":"/usr/libexec/crio/crun","RuntimeType":"oci"}}}}`, rdtFile, blockIOFile)
	return fakeRuntime{name: "cri-o", version: version, info: map[string]string{"config": text}}
}

// fakeRuntime answers over CRI.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	name, version string
	info          map[string]string
	failing       error
}

func (r fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: r.name, RuntimeVersion: r.version}, r.failing
}

func (r fakeRuntime) Status(_ context.Context, request *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	if !request.GetVerbose() {
		return &runtimeapi.StatusResponse{}, nil
	}
	return &runtimeapi.StatusResponse{Info: r.info}, nil
}

// host makes a root directory with the sockets and files of a runtime. The runtime answers over CRI. It has the socket of
// NRI if `nri` is true.
func host(t *testing.T, r fakeRuntime, nri bool, files map[string]string) Options {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}

	must(t, os.MkdirAll(filepath.Join(root, "run"), 0o755))
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	listener := mustListen(t, filepath.Join(root, endpoint))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	if nri {
		mustListen(t, filepath.Join(root, nriSocketPath))
	}

	return Options{Endpoint: "unix://" + filepath.Join(root, endpoint), NRISocket: filepath.Join(root, nriSocketPath), Files: hostfs.Root(root)}
}

func mustListen(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func inspect(t *testing.T, o Options) []string {
	t.Helper()
	findings, err := Inspect(t.Context(), o)
	must(t, err)
	lines := make([]string, 0, len(findings))
	for _, finding := range findings {
		lines = append(lines, strings.ReplaceAll(finding.String(), strings.TrimSuffix(o.NRISocket, nriSocketPath), ""))
	}
	return lines
}

func TestARuntimeThatIsSetUpHasNoProblems(t *testing.T) {
	r := fakeRuntime{name: "containerd", version: "v2.4.2", info: map[string]string{"config": config}}
	o := host(t, r, true, map[string]string{
		"/etc/containerd/config.toml":    "version = 4\nimports = ['/etc/containerd/conf.d/*.toml']\n[plugins.'io.containerd.service.v1.tasks-service']\n  rdt_config_file = ''\n",
		"/etc/containerd/conf.d/50.toml": "version = 4\n[plugins.\"io.containerd.nri.v1.nri\".default_validator]\n  enable = true # for pods\n[x]\nenable = false\n",
	})

	o.Features = func(context.Context, string) ([]byte, error) {
		return []byte(`{"annotations":{"org.opencontainers.runc.version":"1.5.2"},"linux":{"intelRdt":{"enabled":true}}}`), nil
	}

	want := []string{
		"ok: the runtime is containerd v2.4.2",
		"ok: NRI of containerd v2.4.2 can set RDT groups",
		"ok: the OCI runtime runc 1.5.2 (/opt/runc) can set RDT groups and limit several disks",
		"ok: NRI is on: /run/nri.sock answers",
		"ok: containerd has no RDT or block I/O configuration of its own in /etc/containerd/config.toml, /etc/containerd/conf.d/50.toml",
		"ok: NRI's default validator is on: pods that require the plugin wait for it",
		"ok: containerd leaves rdt.resources.beta.kubernetes.io annotations to the plugin",
		"warning: containerd refuses pods with blockio.resources.beta.kubernetes.io annotations; if you use these annotations, set ignore_blockio_not_enabled_errors = true in containerd's CRI configuration",
	}

	if diff := cmp.Diff(want, inspect(t, o)); diff != "" {
		t.Errorf("findings differ (-want +got):\n%s", diff)
	}
}

// TestACRIOThatIsSetUpHasNoProblems has a CRI-O that reports over CRI that it has no RDT configuration. The setting in its file does not
// count, because something else overrides it.
func TestACRIOThatIsSetUpHasNoProblems(t *testing.T) {
	o := host(t, crioReports("1.37.0", "", ""), true, map[string]string{"/etc/crio/crio.conf": "[crio.runtime]\nrdt_config_file = '/overridden'\n",
		"/etc/crio/crio.conf.d/10": "[crio.nri.default_validator]\nnri_enable_default_validator = true\n"})
	want := []string{
		"ok: the runtime is cri-o 1.37.0",
		"ok: NRI of CRI-O 1.37.0 can set RDT groups",
		"unknown: whether the OCI runtime can set RDT groups and limit several disks (this requires runc 1.2 or later, or crun 1.18 or later): " +
			"in a container, this check executes no programs of the host; run on the node: /usr/libexec/crio/crun --version",
		"ok: NRI is on: /run/nri.sock answers",
		"warning: CRI-O 1.37.0 can hang when an NRI plugin requests an update of a container, so this plugin requests no updates, but other plugins may request them",
		"ok: cri-o has no RDT or block I/O configuration of its own",
		"ok: NRI's default validator is on: pods that require the plugin wait for it",
		"warning: CRI-O refuses pods with rdt.resources.beta.kubernetes.io annotations; " +
			"if you use these annotations, replace them (see docs/requests.md), because CRI-O has no setting to ignore them",
		"ok: CRI-O leaves blockio.resources.beta.kubernetes.io annotations to the plugin",
	}

	if diff := cmp.Diff(want, inspect(t, o)); diff != "" {
		t.Errorf("findings differ (-want +got):\n%s", diff)
	}
}

func TestCheckReportsWhetherTheOCIRuntimeSetsRDTGroupsAndLimitsOfDisks(t *testing.T) {
	const crun = `{"linux":{"intelRdt":{"enabled":true}},"annotations":{"run.oci.crun.checkpoint.enabled":"true","run.oci.crun.version":"%s"}}`
	for _, test := range []struct{ name, features, want string }{
		{"crun", fmt.Sprintf(crun, "1.27"), "ok: the OCI runtime crun 1.27 (PROGRAM) can set RDT groups and limit several disks"},
		{"a crun that does not split values", fmt.Sprintf(crun, "1.17"), "problem: the OCI runtime crun 1.17 (PROGRAM) writes the limits of all disks at once, " +
			"and the kernel refuses that, so containers whose block I/O class limits several disks cannot be created; " +
			"use runc 1.2 or later, or crun 1.18 or later, or set Direct: true in the class file"},
		{"a crun that was built without RDT", `{"annotations":{"run.oci.crun.version":"1.27"}}`, "warning: the OCI runtime crun 1.27 (PROGRAM) cannot set RDT groups; " +
			"the plugin moves containers before their first instruction"},
		{"a runc that does not report RDT", `{"annotations":{"org.opencontainers.runc.version":"1.1.12"}}`, "problem: the OCI runtime runc 1.1.12 (PROGRAM) writes"},
		{"a runc of a distribution", `{"annotations":{"org.opencontainers.runc.version":"1.3.4+ds1"}}`, "ok: the OCI runtime runc 1.3.4+ds1 (PROGRAM)"},
		{"another OCI runtime", `{"ociVersionMin":"1.0.0","linux":{"intelRdt":{"enabled":true}}}`, "(this requires runc 1.2 or later, or crun 1.18 or later): PROGRAM reports no version of runc or crun"},
		{"an output that is not JSON", "crun 1", "PROGRAM features: invalid character 'c'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "oci")
			script := "#!/bin/sh\n[ \"$*\" = features ] || exit 9\ncat <<'EOF'\n" + test.features + "\nEOF\n"
			if err := os.WriteFile(program, []byte(script), 0o700); err != nil { //nolint:gosec // it must be executable
				t.Fatal(err)
			}
			o := host(t, fakeRuntime{name: "containerd", version: "2.4.2", info: map[string]string{"config": strings.Replace(config, "/opt/runc", program, 1)}}, true, nil)
			o.Features = Features
			want := strings.ReplaceAll(test.want, "PROGRAM", program)
			if got := inspect(t, o); !strings.Contains(got[2], want) {
				t.Errorf("got  %s\nwant %s", got[2], want)
			}
		})
	}
}

func TestAnOCIRuntimeThatFailsIsUnknown(t *testing.T) {
	old := filepath.Join(t.TempDir(), "crun")
	if err := os.WriteFile(old, []byte("#!/bin/sh\necho unknown command features >&2\nexit 1\n"), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}

	for program, want := range map[string]string{
		old:                           old + " features: exit status 1: unknown command features; run: " + old + " --version",
		filepath.Join(old, "missing"): "not a directory",
	} {
		_, err := Features(t.Context(), program)
		i := inspection{Options: Options{Features: Features}, runtime: runtime{name: "containerd", oci: program}}
		i.ociRuntime(t.Context())
		if got := i.findings[0]; err == nil || got.Level != Unknown || !strings.Contains(got.Text, want) {
			t.Errorf("the error is %v, and the finding %s, want unknown with %q", err, got, want)
		}
	}
}

// TestCheckReportsTheSetupOfTheRuntime looks for a line in what "check" reports about a container runtime.
func TestCheckReportsTheSetupOfTheRuntime(t *testing.T) {
	containerdOf := func(version string) fakeRuntime { return fakeRuntime{name: "containerd", version: version} }
	main := "/etc/containerd/config.toml"
	for _, test := range []struct {
		name    string
		runtime fakeRuntime
		nri     bool
		files   map[string]string
		want    string
	}{
		{"an old containerd", containerdOf("v2.2.0"), true, nil, "warning: NRI of containerd v2.2.0 cannot set RDT groups"},
		{"the first containerd whose NRI can set RDT groups", containerdOf("2.2.1"), true, nil, "ok: NRI of containerd 2.2.1 can set RDT groups"},
		{"a containerd of a distribution", containerdOf("1.7.27-0ubuntu1~24.04.1"), true, nil, "warning: NRI of containerd 1.7.27"},
		{"a containerd without a version", containerdOf("unknown"), true, nil, "unknown: whether the NRI of containerd unknown can set RDT groups"},
		{"an old CRI-O", fakeRuntime{name: "cri-o", version: "1.34.2"}, true, nil, "warning: NRI of CRI-O 1.34.2 cannot set RDT groups"},
		{"the first CRI-O whose NRI can set RDT groups", crioReports("1.35.0", "", ""), true, nil, "ok: NRI of CRI-O 1.35.0 can set RDT groups"},
		{"another runtime", fakeRuntime{name: "other", version: "9"}, true, nil, "unknown: whether other has an RDT configuration of its own"},
		{"a containerd without the NRI socket", containerdOf("v2.4.2"), false, nil, "problem: NRI is off, or its socket is not /run/nri.sock; set disable = false"},
		{"a CRI-O without the NRI socket", fakeRuntime{name: "cri-o", version: "1.36.0"}, false, nil, "set enable_nri = true under [crio.nri]"},
		{"no configuration where it usually is", containerdOf("v2.4.2"), true, nil, "unknown: whether containerd has an RDT configuration of its own: there is no " + main},
		{"an RDT configuration", containerdOf("v2.4.2"), true, map[string]string{main: "\n  rdt_config_file = \"/etc/rdt.yaml\"\n"}, "problem: containerd has an RDT configuration of its own (rdt_config_file in " + main + ":2)"},
		{"a block I/O configuration", containerdOf("v2.4.2"), true, map[string]string{main: "blockio_config_file = '/etc/b.yaml'"}, "warning: containerd has a block I/O configuration of its own (blockio_config_file in " + main + ":1)"},
		{"imports from elsewhere", containerdOf("v2.4.2"), true, map[string]string{main: "imports = ['/opt/*.toml']"}, "unknown: whether containerd has an RDT configuration of its own: " + main + ":1 imports ['/opt/*.toml'], which were not read"},
		{"an RDT configuration of CRI-O", crioReports("1.37.0", "/etc/rdt.yaml", ""), true, nil, "problem: cri-o has an RDT configuration of its own (rdt_config_file = \"/etc/rdt.yaml\"), " +
			"and removes the resctrl groups of the plugin and of other programs when it starts; remove that setting, and name the file as rdt.configFile in a class file"},
		{"a block I/O configuration of CRI-O", crioReports("1.37.0", "", "/etc/b.yaml"), true, nil, "warning: cri-o has a block I/O configuration of its own (blockio_config_file = \"/etc/b.yaml\")"},
		{"a CRI-O that does not report its configuration", fakeRuntime{name: "cri-o", version: "1.37.0"}, true, nil, "unknown: whether cri-o has an RDT configuration of its own"},
		{"a runtime that does not report its OCI runtime", containerdOf("v2.4.2"), true, nil, "1.18 or later): containerd does not report its OCI runtime"},
		{"a containerd that does not report its flags for annotations", containerdOf("v2.4.2"), true, nil, "unknown: whether containerd refuses pods with rdt.resources.beta.kubernetes.io annotations"},
		{"a validator that is off", containerdOf("v2.4.2"), true, map[string]string{main: "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = false\n[a]\nenable = true\n"},
			"warning: NRI's default validator seems to be off in containerd, so the policy required-plugin has no effect"},
		{"another NRI plugin", containerdOf("v2.4.2"), true, map[string]string{"/opt/nri/plugins/90-balloons": ""}, "warning: the runtime starts other NRI plugins from /opt/nri/plugins: 90-balloons;"},
		{"systemd-oomd in the slice of pods", containerdOf("v2.4.2"), true, map[string]string{"/etc/systemd/system/kubepods.slice.d/10-oomd.conf": "[Slice]\nManagedOOMMemoryPressure = kill\n"},
			"warning: systemd-oomd, if it runs, kills containers (ManagedOOMMemoryPressure=kill of kubepods.slice in /etc/systemd/system/kubepods.slice.d/10-oomd.conf): it ignores"},
		{"systemd-oomd in a slice of the node", containerdOf("v2.4.2"), true, map[string]string{"/usr/lib/systemd/system/system.slice": "ManagedOOMSwap=kill\n"},
			"warning: systemd-oomd, if it runs, kills programs of the node, such as the journal and the container runtime (ManagedOOMSwap=kill of system.slice in /usr/lib/systemd/system/system.slice)"},
		{"systemd-oomd in all slices", containerdOf("v2.4.2"), true, map[string]string{"/usr/lib/systemd/system/slice.d/10-defaults.conf": "ManagedOOMMemoryPressure=kill\n"},
			"warning: systemd-oomd, if it runs, kills containers and programs of the node (ManagedOOMMemoryPressure=kill of slice in "},
		{"a runtime that fails", fakeRuntime{failing: status.Error(codes.Internal, "out of order")}, true, nil, "problem: the runtime does not answer on unix:///run/cri.sock: out of order"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := inspect(t, host(t, test.runtime, test.nri, test.files))
			if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, test.want) }) {
				t.Errorf("no finding contains %q:\n%s", test.want, strings.Join(got, "\n"))
			}
		})
	}
}

func TestRulesOfSystemdOOMDThatDoNotKillPodsAreNotReported(t *testing.T) {
	got := inspect(t, host(t, fakeRuntime{name: "containerd", version: "v2.4.2"}, true, map[string]string{
		"/etc/systemd/system/kubepods.slice.d/a.conf": "#ManagedOOMSwap=kill\nManagedOOMSwap=auto\nManagedOOMMemoryPressureLimit=50%\n",
		"/usr/lib/systemd/system/user.slice":          "ManagedOOMMemoryPressure=kill\n",
		// A file in /etc replaces that of the same name in /usr/lib, and the last assignment counts.
		"/usr/lib/systemd/system/-.slice.d/10-oomd.conf":      "ManagedOOMSwap=kill\n",
		"/etc/systemd/system/-.slice.d/10-oomd.conf":          "[Slice]\n",
		"/usr/lib/systemd/system/system.slice.d/10-oomd.conf": "ManagedOOMMemoryPressure=kill\n",
		"/etc/systemd/system/system.slice.d/99-off.conf":      "ManagedOOMMemoryPressure=auto\n",
	}))
	if slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, "systemd-oomd") }) {
		t.Errorf("got %q", got)
	}
}

func TestAnEndpointMustBeAUnixSocket(t *testing.T) {
	for _, address := range []string{"tcp://127.0.0.1:1", "run/cri.sock", ""} {
		if _, err := Inspect(t.Context(), Options{Endpoint: address}); !errors.Is(err, ErrEndpoint) {
			t.Errorf("%q: error is %v, want ErrEndpoint", address, err)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("version = 2\n[plugins]\n  rdt_config_file = \"/a\" # why\nimports = []\n"))
	f.Add([]byte("# rdt_config_file = '/a'\r\nplugins.\"x.y\".blockio_config_file='b'"))
	f.Add([]byte("=\n==\n.=.\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := strings.Count(string(data), "\n") + 1
		for _, s := range scan("f", data) {
			if s.line < 1 || s.line > lines || strings.TrimSpace(s.value) == "" {
				t.Errorf("setting %+v has no value, or a line outside of the file's %d lines", s, lines)
			}
		}
	})
}

func TestScanFindsOnlySettingsWithAValue(t *testing.T) {
	text := strings.Join([]string{
		"# rdt_config_file = '/commented'",
		"  #plugins.x.rdt_config_file = '/commented'",
		"rdt_config_file = ''",
		`rdt_config_file = "" # nothing`,
		"other_rdt_config_file = '/other'",
		`plugins."io.containerd.service.v1.tasks-service".rdt_config_file = "/dotted"`,
		"  blockio_config_file='/tight'",
		"imports = []",
	}, "\n")

	want := []setting{
		{file: "f", key: rdtFileKey, value: `"/dotted"`, line: 6},
		{file: "f", key: blockIOFileKey, value: "'/tight'", line: 7},
	}

	if diff := cmp.Diff(want, scan("f", []byte(text)), cmp.AllowUnexported(setting{})); diff != "" {
		t.Errorf("settings differ (-want +got):\n%s", diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
