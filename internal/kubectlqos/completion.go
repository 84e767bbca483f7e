// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// completionTime is how long a shell waits for words.
const completionTime = 3 * time.Second

// words are completions, of which the shell shows those that begin as the user did.
type words = []cobra.Completion

// noFiles goes with words of which none is a file.
const noFiles = cobra.ShellCompDirectiveNoFileComp

func newCompletionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell", "kubectl"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell|kubectl",
		Short: "Write a script that completes words in a shell",
		Long: `completion writes a script that completes the words of "kubectl-qos" in a shell.

To have "kubectl qos" completed, kubectl asks a program kubectl_complete-qos; with "kubectl", completion writes that program.
It completes names of nodes, pods, containers, resources and classes out of the cluster.`,
		Example: `  kubectl qos completion kubectl > ~/.local/bin/kubectl_complete-qos
  chmod +x ~/.local/bin/kubectl_complete-qos

  source <(kubectl qos completion bash)`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return program.UsageError(cmd, fmt.Errorf("name one of %s", strings.Join(shells, ", ")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			_, err := fmt.Fprintf(out, "#!/bin/sh\n# Completes \"kubectl qos\": kubectl runs it by its name, kubectl_complete-qos.\nexec kubectl qos %s \"$@\"\n",
				cobra.ShellCompRequestCmd)
			return err
		},
	}
}

// completeFlag completes values of a flag that the command has.
func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	// The error says that there is no such flag, or that it is completed already; both would be seen in tests.
	_ = cmd.RegisterFlagCompletionFunc(flag, complete)
}

// completeConnection completes what is in the kubeconfig, and namespaces.
func completeConnection(root *cobra.Command, flags *genericclioptions.ConfigFlags) {
	fromConfig := func(names func() []string) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) (words, cobra.ShellCompDirective) {
			found := names()
			slices.Sort(found)
			return found, noFiles
		}
	}
	completeFlag(root, "context", fromConfig(func() (names []string) {
		config, _ := flags.ToRawKubeConfigLoader().RawConfig()
		for name := range config.Contexts {
			names = append(names, name)
		}
		return names
	}))
	completeFlag(root, "cluster", fromConfig(func() (names []string) {
		config, _ := flags.ToRawKubeConfigLoader().RawConfig()
		for name := range config.Clusters {
			names = append(names, name)
		}
		return names
	}))
}

// ask lets a completion ask the cluster. A shell that waits for a word is no place for errors: without an answer there are no words.
func (c *cluster) ask(cmd *cobra.Command, use func(ctx context.Context, api *clients) words) words {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	api, err := c.connect()
	if err != nil {
		return nil
	}
	return use(ctx, api)
}

func (c *cluster) completeNamespace(cmd *cobra.Command, _ []string, _ string) (words, cobra.ShellCompDirective) {
	return c.ask(cmd, func(ctx context.Context, api *clients) (found words) {
		list, err := api.core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil
		}
		for i := range list.Items {
			found = append(found, list.Items[i].Name)
		}
		return found
	}), noFiles
}

func (c *cluster) completeNode(cmd *cobra.Command, args []string, _ string) (words, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return c.ask(cmd, func(ctx context.Context, api *clients) (found words) {
		list, err := api.listNodes(ctx)
		if err != nil {
			return nil
		}
		return objectNames(list)
	}), noFiles
}

func (c *cluster) completePod(cmd *cobra.Command, args []string, _ string) (words, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return c.ask(cmd, func(ctx context.Context, api *clients) (found words) {
		pods, err := api.listPods(ctx, api.namespace, "")
		if err != nil {
			return nil
		}
		for i := range pods {
			found = append(found, pods[i].Name)
		}
		return found
	}), noFiles
}

// completeContainer completes containers of the pod that was named.
func (c *cluster) completeContainer(cmd *cobra.Command, args []string, _ string) (words, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, noFiles
	}
	return c.ask(cmd, func(ctx context.Context, api *clients) words {
		pod := api.namedPod(ctx, args[0])
		if pod == nil {
			return nil
		}
		return askable(pod)
	}), noFiles
}

// namedPod is the pod that the command line names; nil without one.
func (c *clients) namedPod(ctx context.Context, word string) *corev1.Pod {
	name, err := podName(word)
	if err != nil {
		return nil
	}
	pod, err := c.getPod(ctx, name)
	if err != nil {
		return nil
	}
	return pod
}

// completePairs completes a pod, and then resource=class for it: classes that its node has, of resources that can be changed.
func (c *cluster) completePairs(cmd *cobra.Command, args []string, begun string) (words, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return c.completePod(cmd, args, begun)
	}
	return c.ask(cmd, func(ctx context.Context, api *clients) words {
		pod := api.namedPod(ctx, args[0])
		if pod == nil {
			return nil
		}
		node, err := api.nodeOf(ctx, pod)
		if err != nil || node == nil {
			return nil
		}
		ofPod, _ := cmd.Flags().GetBool("pod")
		return pairWords(node, ofPod, strings.Join(args[1:], ","), begun)
	}), noFiles | cobra.ShellCompDirectiveNoSpace
}

// pairWords complete the last of "resource=class" pairs, with resources that are not in those before; those of pods for a change of
// the pod only.
func pairWords(node *nodeqosv1alpha1.NodeQOSResources, ofPod bool, before, begun string) words {
	done, last := "", begun
	if at := strings.LastIndex(begun, ","); at >= 0 {
		done, last = begun[:at+1], begun[at+1:]
	}
	var found words
	for _, r := range scopedResources(node) {
		if r.scope == nodeqosv1alpha1.ScopePod && !ofPod || !r.Mutable || names(before+","+done, r.Name) {
			continue
		}
		for _, class := range r.Classes {
			if word, ok := pairWord(r.Name, class.Name, last); ok && !class.Draining {
				found = append(found, done+word)
			}
		}
	}
	return found
}

// names says whether pairs have a resource already, by its short name or its full one.
func names(pairs, resource string) bool {
	for pair := range strings.SplitSeq(pairs, ",") {
		if name, _, _ := strings.Cut(pair, "="); classes.CanonicalResource(strings.TrimSuffix(name, removed)) == resource {
			return true
		}
	}
	return false
}

// pairWord is the pair that begins as it was begun: with the short name of the resource, or else with the full one.
func pairWord(resource, class, begun string) (word string, ok bool) {
	for _, name := range []string{shortName(resource), resource} {
		if word := name + "=" + class; strings.HasPrefix(word, begun) {
			return word, true
		}
	}
	return "", false
}

// shortName is by which people call the official resources.
func shortName(resource string) string {
	if resource == classes.RDTResource || resource == classes.BlockIOResource {
		return strings.TrimPrefix(resource, "k8s.io/")
	}
	return resource
}
