// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// escapes has control characters, and escape sequences that change the title of a terminal, clear it and switch colors.
// Some sequences begin with ESC, and others with a C1 control character.
const escapes = "\x1b]0;x\x07\x1b[2J\u009b31m\u0085\u007f\t\r\n"

// newEscapesRig returns a rig with pods that have escapes in their annotations and states.
func newEscapesRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, "nodes.yaml", "pods.yaml")
	for _, name := range []string{"web", "typo"} {
		r.updatePod(t, name, func(p *corev1.Pod) {
			p.Annotations = map[string]string{"qos.noderesource.dev/pod": "rdt=" + escapes, "container.qos.noderesource.dev/main": escapes}
			for i := range p.Status.ContainerStatuses {
				p.Status.ContainerStatuses[i].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: escapes, Message: escapes}}
			}
		})
	}

	r.updateResource(t, "node-1", "containerQOSResources", func(resource map[string]any) {
		class := resource["classes"].([]any)[0].(map[string]any)
		class["description"], class["degraded"] = escapes, escapes
	})
	return r
}

func TestTextsOfUsersCannotControlTheTerminal(t *testing.T) {
	r := newEscapesRig(t)
	for _, command := range []string{
		"pods", "pods -o wide", "pods web", "pods -o json", "pods -o yaml", "nodes", "nodes node-1", "nodes -o json", "nodes -o yaml", "top",
		"set web -c main rdt=gold", "set web -c nosuch rdt=gold", "set web --pod rdt=gold", "set web -c main rdt=" + escapes,
		"pods " + escapes, "nodes " + escapes,
	} {
		got := r.run(t, strings.Split(command, " ")...) // not Fields, which would split escapes, too
		for _, text := range []string{got.Out, got.Errors} {
			if at := strings.IndexFunc(text, func(c rune) bool { return c != '\n' && unicode.IsControl(c) }); at >= 0 {
				t.Errorf("%q prints %q", command, text[at:min(at+50, len(text))])
			}
		}
	}
}

func TestAProgramThatDecodesJSONOrYAMLGetsTheControlCharacters(t *testing.T) {
	r := newEscapesRig(t)
	for _, format := range []string{"json", "yaml"} {
		got := r.run(t, "pods", "-o", format)
		var list struct {
			Items []struct{ Requested, Message string }
		}
		if err := yaml.Unmarshal([]byte(got.Out), &list); err != nil || got.Code != 0 {
			t.Fatalf("%s: exit code %d, %s%v", format, got.Code, got.Errors, err)
		}
		found := false
		for _, item := range list.Items {
			found = found || strings.Contains(item.Requested+item.Message, "\u009b31m")
		}
		if !found {
			t.Errorf("%s has no text with the control characters: %+v", format, list.Items)
		}
	}
}
