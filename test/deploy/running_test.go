// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// TestTheProgramsAcceptTheirArguments adds --help to the arguments. Flags are parsed in order, so --help succeeds only
// if the flags before it are valid.
func TestTheProgramsAcceptTheirArguments(t *testing.T) {
	for _, c := range render(t).containers(t) {
		t.Run(c.Name, func(t *testing.T) {
			if len(c.Command) != 1 {
				t.Fatalf("the command of the container is %q", c.Command)
			}
			file := child.Build(t, root, strings.TrimPrefix(c.Command[0], "/"))
			out, err := child.Command(t, file, append(slices.Clone(c.Args), "--help")...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--metrics-address") {
				t.Errorf("%v: %s", err, out)
			}
			if out, err := child.Command(t, file, append(slices.Clone(c.Args), "--no-such-flag", "--help")...).CombinedOutput(); err == nil {
				t.Errorf("the program accepts an unknown flag: %s", out)
			}
		})
	}
}

func TestTheClassFilesAreValid(t *testing.T) {
	found := render(t)
	dir := t.TempDir()
	for name, data := range found.config.Data {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}

	out, err := child.Command(t, child.Build(t, root, "qos-nri-plugin"), "check", "--offline", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "OK") || strings.HasPrefix(string(out), "0 files") {
		t.Errorf("%v: %s", err, out)
	}

	t.Run("the plugin reads them, and needs no restart after a change", func(t *testing.T) {
		at := slices.IndexFunc(found.container(t, "plugin").VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/qos-nri-plugin" })
		if at < 0 {
			t.Fatal("nothing is mounted where the plugin looks for class files")
		}
		mount := found.container(t, "plugin").VolumeMounts[at]
		volume := found.container(t, "plugin").volume(mount).ConfigMap
		if volume == nil || volume.Name != found.config.Name || mount.SubPath != "" {
			t.Errorf("the volume is %+v and its mount %+v, want all of the ConfigMap %s", volume, mount, found.config.Name)
		}
		if found.config.Name != "qos-classes" {
			t.Errorf("the name of the ConfigMap is %s, want qos-classes, without a hash of the contents", found.config.Name)
		}
	})
}

// TestUninstallRemovesEverythingThatIsInstalled checks that deploy/uninstall has the objects of all kustomizations, and
// that its ConfigMap replaces that of the class files and has no classes. docs/kubernetes.md ("Uninstall") uses these
// files.
func TestUninstallRemovesEverythingThatIsInstalled(t *testing.T) {
	all, err := filepath.Glob(filepath.Join(root, "deploy/*/kustomization.yaml"))
	if err != nil || len(all) < 4 {
		t.Fatalf("found %q, %v", all, err)
	}

	deleted := names(t, "deploy/uninstall")
	for _, file := range all {
		text, err := os.ReadFile(file)
		must(t, err)
		if strings.Contains(string(text), "\nkind: Component\n") { // a component has no objects of its own
			continue
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		must(t, err)
		for _, name := range names(t, dir) {
			if !slices.Contains(deleted, name) {
				t.Errorf("%s installs %s, and deploy/uninstall does not have it", dir, name)
			}
		}
	}

	var none corev1.ConfigMap
	text, err := os.ReadFile(filepath.Join(root, "deploy/uninstall/no-classes.yaml"))
	must(t, err)

	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))

	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := decoder.Decode(text, nil, &none); err != nil {
		t.Fatal(err)
	}

	if used := render(t).config; none.Name != used.Name || none.Namespace != used.Namespace {
		t.Errorf("the ConfigMap without classes replaces %s/%s, and the plugin reads %s/%s", none.Namespace, none.Name, used.Namespace, used.Name)
	}

	if !strings.HasSuffix(none.Data["classes.yaml"], "\nresources: []\n") {
		t.Errorf("the ConfigMap has classes, want none: %v", none.Data)
	}
}

// names returns the kinds and names of the objects of a kustomization.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	for _, r := range kustomized(t, dir) {
		all = append(all, r.CurId().String())
	}
	return all
}

// TestProbesReachThePrograms checks that each program listens on all addresses. The kubelet probes the pod's address,
// where a server that listens only on 127.0.0.1 does not answer.
func TestProbesReachThePrograms(t *testing.T) {
	for _, c := range render(t).containers(t) {
		t.Run(c.Name, func(t *testing.T) {
			for want, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != want {
					t.Fatalf("the container has no probe of %s", want)
				}
				at := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == probe.HTTPGet.Port.StrVal })
				if at < 0 {
					t.Fatalf("the container does not have the port %s of the probe", probe.HTTPGet.Port.String())
				}
				listens := "--metrics-address=:" + strconv.Itoa(int(c.Ports[at].ContainerPort))
				if !slices.Contains(c.Args, listens) {
					t.Errorf("the container lacks the argument %s; it has %q", listens, c.Args)
				}
			}
		})
	}
}

// TestEachClientSeesTheSocketOfTheNodeAPIThatIsMeantForIt: `argument` is the container's argument that names a socket of the node API, or ""
// if there is none.
func TestEachClientSeesTheSocketOfTheNodeAPIThatIsMeantForIt(t *testing.T) {
	found := render(t)
	const all, read = "/run/qos-nri-plugin/qos.sock", "/run/qos-nri-plugin/read/qos.sock"
	for name, want := range map[string]struct{ argument, socket string }{
		"plugin":    {"--api-read-socket=" + read, all},
		"shim":      {"", all}, // the default of --api-socket
		"publisher": {"--api-socket=" + read, read},
	} {
		c := found.container(t, name)
		argument := ""
		for _, a := range c.Args {
			if strings.HasPrefix(a, "--api-socket=") || strings.HasPrefix(a, "--api-read-socket=") {
				argument = a
			}
		}
		if argument != want.argument {
			t.Errorf("container %s has the argument %q, want %q", name, argument, want.argument)
		}
		if mount, there := c.hostMounts()[path.Dir(want.socket)]; !there || !strings.HasSuffix(mount, path.Dir(want.socket)) {
			t.Errorf("container %s cannot see %s", name, want.socket)
		}
	}
}

// TestThePluginCanOpenTheReadOnlySocketToThePublisher checks that the plugin is a member of the publisher's group.
// Otherwise the plugin would need the capability CHOWN to give the socket to this group (chown(2)).
func TestThePluginCanOpenTheReadOnlySocketToThePublisher(t *testing.T) {
	found := render(t)
	plugin, publisher := found.container(t, "plugin"), found.container(t, "publisher")
	gid := publisher.SecurityContext.RunAsGroup
	if gid == nil || !slices.Contains(plugin.Args, fmt.Sprintf("--api-read-socket-group=%d", *gid)) ||
		!slices.Contains(plugin.pod.SecurityContext.SupplementalGroups, *gid) {
		t.Errorf("the publisher has the group %v, but the plugin has the arguments %q and the security context %+v", gid, plugin.Args, plugin.pod.SecurityContext)
	}
}

func TestTheDaemonSetsRunOncePerLinuxNode(t *testing.T) {
	for _, d := range render(t).daemons {
		pod, strategy := d.Spec.Template.Spec, d.Spec.UpdateStrategy.RollingUpdate
		if !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
			return t.Operator == corev1.TolerationOpExists && t.Key == "" && t.Effect == ""
		}) {
			t.Errorf("a taint keeps %s away", d.Name)
		}
		// Without this priority, a full node could not run the pod.
		if pod.NodeSelector["kubernetes.io/os"] != "linux" || len(pod.NodeSelector) != 1 || pod.PriorityClassName != "system-node-critical" {
			t.Errorf("nodes of %s are %v, priority is %s", d.Name, pod.NodeSelector, pod.PriorityClassName)
		}
		if strategy == nil || strategy.MaxSurge != nil && strategy.MaxSurge.String() != "0" {
			t.Errorf("during an update, a node may run two pods of %s: %+v", d.Name, strategy)
		}
	}
}

// TestTheDaemonSetsRequestNoClass checks that the project's own pods request no class. Otherwise these pods could never
// start, because a pod that requests a class cannot start before they run.
func TestTheDaemonSetsRequestNoClass(t *testing.T) {
	found := render(t)
	for _, d := range found.daemons {
		for key := range d.Spec.Template.Annotations {
			if strings.Contains(key, "qos.noderesource.dev") || strings.Contains(key, "resources.kubernetes.io") {
				t.Errorf("annotation %s requests a class", key)
			}
		}
	}

	for _, c := range found.containers(t) {
		for resource := range c.Resources.Limits {
			if strings.Contains(string(resource), "/") {
				t.Errorf("container %s requests %s", c.Name, resource)
			}
		}
	}
}

func TestAllContainersHaveTheImageThatMakeImageBuilds(t *testing.T) {
	for _, c := range render(t).containers(t) {
		if c.Image != "localhost/qos-nri-plugin:dev" || c.ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("container %s has image %s, pull policy %s; the default of make image is localhost/qos-nri-plugin:dev", c.Name, c.Image, c.ImagePullPolicy)
		}
	}
}
