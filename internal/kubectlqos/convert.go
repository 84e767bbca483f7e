// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/internal/convert"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// stdinName is the argument that stands for standard input.
const stdinName = "-"

type convertCommand struct {
	*cluster
	files                     []string
	recursive, inPlace, quiet bool
	classFiles                string
	fromCluster               bool
	driver                    string
	modifyVolume, koordinator bool
	claims                    bool
}

func newConvertCommand(c *cluster) *cobra.Command {
	o := &convertCommand{cluster: c}
	cmd := &cobra.Command{
		Use:   "convert [-f FILE|-|DIR]… [FILE|-|DIR]…",
		Short: "Convert manifests with KEP-3008 fields to manifests for stock Kubernetes",
		Long: `convert reads manifests with the fields that KEP-3008 defines, qosResources in pods and containers of any kind of workload, in
LimitRanges and in ResourceQuotas. In place of these fields it writes extended resources, annotations where extended resources are not
enough, QOSLimitRanges and native quotas. A document that it changes keeps its comments and the order of its fields; blank lines,
indentation and JSON line breaks are normalized, and YAML aliases are replaced by what they stand for. Documents without such fields,
and documents that are already converted, are copied byte by byte.

Without files it reads standard input, so it can be a Helm post-renderer, and a KRM function for kustomize and kpt. In a DIR it
reads *.yaml, *.yml and *.json, but no symbolic links; links on the command line are followed. Several files become one
stream of documents.

It works offline. --class-files or --from-cluster adds the scopes of resources and the existing classes, which a
ResourceQuota needs. Without these flags only rdt and blockio are known, in container scope.

Annotations of containerd and CRI-O (rdt.resources.beta.kubernetes.io/…, blockio.resources.beta.kubernetes.io/…) and of nri-plugins
(rdtclass.resource-policy.nri.io/…, blockioclass.resource-policy.nri.io/…) on pods and pod templates become annotations of this project.
With --koordinator, pods with the label koordinator.sh/qosClass get such an annotation with the RDT class lsr, ls or be. The label stays.

Claims whose requests have iops or throughput, as in the first revision of KEP-3751, get VolumeAttributesClasses instead. The driver of a
class comes from the StorageClass of the claim, if a FILE has it, or from --driver. A note has the command that gives the
class to a claim when it is bound. With --modify-volume, the claim names the class from the beginning.

With --claims, containers request classes by claims of Dynamic Resource Allocation, instead of extended resources. Each container gets
a claim of its own for each class, from a ResourceClaimTemplate with the name of the class's DeviceClass, as "kubectl qos device-classes"
prints it. Pods with nodeName, and LimitRanges with classes of containers, cannot be converted to claims.

The exit code is 0, 1 when something cannot be converted (then nothing is written), and 2 when the command line is wrong.`,
		Example: `  kubectl qos convert -f pod.yaml | kubectl apply -f -
  kubectl qos convert --in-place -R deploy/
  kustomize build . | kubectl qos convert --class-files classes.yaml | kubectl apply -f -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, args...)
			if err := o.check(); err != nil {
				return program.UsageError(cmd, err)
			}
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "File or directory with manifests, or - for standard input; may be repeated.")
	flags.BoolVarP(&o.recursive, "recursive", "R", false, "Read directories recursively.")
	flags.BoolVarP(&o.inPlace, "in-place", "i", false, "Change the files, all of them or none, instead of writing to standard output.")
	flags.BoolVar(&o.fromCluster, "from-cluster", false, "Read the existing resources and classes from the cluster.")
	flags.StringVar(&o.driver, "driver", "", "Driver of the claims whose StorageClass is not in the files.")
	flags.BoolVar(&o.modifyVolume, "modify-volume", false, "Name the class in the claim; the driver must have the capability MODIFY_VOLUME.")
	flags.BoolVar(&o.koordinator, "koordinator", false, "Add an annotation with the RDT class to pods with the label koordinator.sh/qosClass.")
	flags.BoolVar(&o.claims, "claims", false, "Request classes by ResourceClaimTemplates instead of extended resources.")
	addConvertFlags(flags, &o.classFiles, &o.quiet)
	return cmd
}

func addConvertFlags(flags *pflag.FlagSet, classFiles *string, quiet *bool) {
	flags.StringVar(classFiles, "class-files", "", "Class file, or directory of class files, with the resources and classes that exist.")
	flags.BoolVarP(quiet, "quiet", "q", false, "Print no notes.")
}

func (o *convertCommand) check() error {
	stdins := 0
	for _, file := range o.files {
		if file == stdinName {
			stdins++
		}
	}

	switch {
	case len(o.files) == 0 && o.inPlace:
		return errors.New("--in-place needs files")
	case len(o.files) == 0 && isTerminal(o.streams.In):
		return errors.New("no FILE is given, and standard input is a terminal; use -f")
	case stdins > 1:
		return errors.New("standard input can be read only once")
	case stdins > 0 && o.inPlace:
		return errors.New("--in-place cannot change standard input")
	case o.classFiles != "" && o.fromCluster:
		return errors.New("--class-files and --from-cluster cannot be used together")
	case o.driver != "" && len(content.IsLabelKey(o.driver)) > 0:
		return fmt.Errorf("--driver %q is not the name of a driver; write one like topolvm.io", o.driver)
	}
	return nil
}

// isTerminal reports whether a stream, a reader or a writer, is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (o *convertCommand) run(ctx context.Context) error {
	known, err := o.known(ctx, o.classFiles, o.fromCluster)
	if err != nil {
		return err
	}
	manifests, err := readManifests(o.files, o.recursive, o.streams.In)
	if err != nil {
		return err
	}

	inputs := make([]convert.Input, len(manifests))
	for i, m := range manifests {
		inputs[i] = convert.Input{Name: m.name, Text: m.text}
	}
	results, err := convert.Convert(inputs, convert.Options{
		Known: known, Driver: o.driver, ModifyVolume: o.modifyVolume, Koordinator: o.koordinator, Claims: o.claims,
	})
	if err := o.printOutcome(err, o.quiet, results...); err != nil {
		return err
	}

	texts := make([][]byte, len(results))
	for i, result := range results {
		texts[i] = result.Text
	}
	if o.inPlace {
		return replaceFiles(manifests, texts)
	}
	_, err = o.streams.Out.Write(convert.Join(texts))
	return err
}

// known returns the resources and classes of class files or of the cluster. If the user selects neither of these
// sources, it returns nothing.
func (c *cluster) known(ctx context.Context, classFiles string, fromCluster bool) (convert.Known, error) {
	switch {
	case classFiles != "":
		kinds, err := kinds()
		if err != nil {
			return convert.Known{}, err
		}
		source := config.Read(classFiles, kinds, config.HostFiles("/"))
		if source.Err != nil {
			return convert.Known{}, source.Err
		}
		return convert.KnownFromConfig(source.Config), nil
	case !fromCluster:
		return convert.Known{}, nil
	}

	clients, err := c.connect()
	if err != nil {
		return convert.Known{}, err
	}
	nodes, err := clients.summaries(ctx)
	if err != nil {
		return convert.Known{}, err
	}
	if len(nodes) == 0 {
		return convert.Known{}, errors.New("no node of the cluster reports QoS-class resources; check that qos-kubelet-shim runs, or use --class-files")
	}
	return convert.KnownFromNodes(nodes)
}

// printOutcome prints the problems of a conversion, which `err` joins. If there are none, it prints each note once, unless `quiet` is true.
func (c *cluster) printOutcome(err error, quiet bool, results ...convert.Result) error {
	problems := classes.SplitErrors(err)
	for _, problem := range problems {
		fmt.Fprintln(c.streams.ErrOut, problem)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w; nothing was written", config.Problems(len(problems)))
	}

	var said []string
	for _, result := range results {
		for _, note := range result.Notes {
			if !quiet && !slices.Contains(said, note) {
				said = append(said, note)
				fmt.Fprintln(c.streams.ErrOut, "note:", note)
			}
		}
	}
	return nil
}
