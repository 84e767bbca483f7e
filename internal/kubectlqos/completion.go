// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const completionTime = 3 * time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

func newCompletionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell", "kubectl"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell|kubectl",
		Short: "Write a script that completes words in a shell",
		Long: `completion writes a script that completes the words of the command kubectl-qos in a shell.

To complete the words of kubectl qos, kubectl runs the program kubectl_complete-qos. With the argument kubectl, completion writes this program.
The program completes names of nodes, pods, containers, resources and classes of the cluster.`,
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

func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	// This call fails only if the flag does not exist or already has a completion. Tests would detect both mistakes.
	_ = cmd.RegisterFlagCompletionFunc(flag, complete)
}

// withType returns each name with the type `of` before it, as in node/node-1.
func withType(of string, names []string) []string {
	for i := range names {
		names[i] = of + "/" + names[i]
	}
	return names
}

// addPluginNamespace adds the flag of commands that ask the plugin's pods.
func (c *cluster) addPluginNamespace(cmd *cobra.Command, namespace *string) {
	const flag = "plugin-namespace"
	cmd.Flags().StringVar(namespace, flag, "qos-system", "The namespace of the plugin's pods.")
	completeFlag(cmd, flag, c.completeNamespace)
}

func completeConnection(root *cobra.Command, flags *genericclioptions.ConfigFlags) {
	completeFlag(root, "context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, _ := flags.ToRawKubeConfigLoader().RawConfig()
		return slices.Sorted(maps.Keys(config.Contexts)), noFiles
	})
	completeFlag(root, "cluster", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, _ := flags.ToRawKubeConfigLoader().RawConfig()
		return slices.Sorted(maps.Keys(config.Clusters)), noFiles
	})
}

// complete returns completions from the state of the cluster. If the cluster does not answer, it returns no completions
// and no error.
func (c *cluster) complete(
	cmd *cobra.Command, words func(ctx context.Context, api *clients) ([]string, error),
) (found []string, directive cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()

	if api, err := c.connect(); err == nil {
		found, _ = words(ctx, api)
	}
	return found, noFiles
}

// namesIn returns the names of the objects in a list. It takes the results of the request for the list.
func namesIn(list runtime.Object, err error) (names []string, _ error) {
	if err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		metadata, err := meta.Accessor(object)
		if err == nil {
			names = append(names, metadata.GetName())
		}
		return err
	})
	return names, err
}

func (c *cluster) completeNamespace(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.complete(cmd, func(ctx context.Context, api *clients) ([]string, error) {
		return namesIn(api.core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}))
	})
}

func (c *cluster) completeNode(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return c.complete(cmd, func(ctx context.Context, api *clients) ([]string, error) { return api.nodeNames(ctx) })
}

func (c *cluster) completePod(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.complete(cmd, func(ctx context.Context, api *clients) (names []string, err error) {
		pods, err := api.listPods(ctx, api.namespace, "")
		for i := range pods {
			if !slices.Contains(args, pods[i].Name) {
				names = append(names, pods[i].Name)
			}
		}
		return names, err
	})
}

func (c *cluster) completeContainer(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, noFiles
	}
	return c.complete(cmd, func(ctx context.Context, api *clients) ([]string, error) {
		pod, err := api.namedPod(ctx, args[0])
		if err != nil {
			return nil, err
		}
		return askable(pod), nil
	})
}

func (c *cluster) completeStatefulSet(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return c.complete(cmd, func(ctx context.Context, api *clients) ([]string, error) {
		return namesIn(api.core.AppsV1().StatefulSets(api.namespace).List(ctx, metav1.ListOptions{}))
	})
}

func (c *cluster) completeTemplate(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, noFiles
	}
	return c.complete(cmd, func(ctx context.Context, api *clients) (names []string, err error) {
		name, err := statefulSetName(args[0])
		if err != nil {
			return nil, err
		}
		set, err := api.getStatefulSet(ctx, name)
		if err != nil {
			return nil, err
		}
		return templatesOf(set), nil
	})
}

func (c *cluster) completeVolumeAttributesClass(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.complete(cmd, func(ctx context.Context, api *clients) ([]string, error) {
		return namesIn(api.core.StorageV1().VolumeAttributesClasses().List(ctx, metav1.ListOptions{}))
	})
}

func (c *clients) namedPod(ctx context.Context, word string) (*corev1.Pod, error) {
	name, err := podName(word)
	if err != nil {
		return nil, err
	}
	return c.getPod(ctx, name)
}

func (c *cluster) completePairs(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return c.completePod(cmd, args, begun)
	}

	words, directive := c.complete(cmd, func(ctx context.Context, api *clients) ([]string, error) {
		pod, err := api.namedPod(ctx, args[0])
		if err != nil {
			return nil, err
		}
		node, err := api.findNode(ctx, pod.Spec.NodeName)
		if err != nil || node == nil {
			return nil, err
		}
		ofPod, _ := cmd.Flags().GetBool("pod")
		return program.CompletePairs(offered(node, ofPod), args[1:], begun), nil
	})
	return words, directive | cobra.ShellCompDirectiveNoSpace
}

// offered returns the classes of a node that a pod can change to. It includes resources of pod scope only if `ofPod` is true.
func offered(node *nodeqosv1alpha1.NodeQOSResources, ofPod bool) (offers []classes.Pair) {
	for scope, r := range node.Status.QOSResources.All() {
		for _, class := range r.Classes {
			if r.Mutable && !class.Draining && (ofPod || scope != nodeqosv1alpha1.ScopePod) {
				offers = append(offers, classes.Pair{Resource: r.Name, Class: class.Name})
			}
		}
	}
	return offers
}
