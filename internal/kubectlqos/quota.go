// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

type quotaCommand struct {
	*cluster
	files      []string
	quiet      bool
	classFiles string
}

func newQuotaCommand(c *cluster) *cobra.Command {
	o := &quotaCommand{cluster: c}
	cmd := &cobra.Command{
		Use:   "quota -f FILE",
		Short: "Convert a ResourceQuota with KEP-3008 fields to one for stock Kubernetes",
		Long: `quota reads a ResourceQuota with the qosResources that KEP-3008 defines, and writes it with requests of extended resources instead:

    a class with a capacity          at most so many units at a time in the namespace
  a class without a capacity       no limit
  a class that is not listed       forbidden, by the annotation qos.noderesource.dev/allowed-classes, which a policy enforces
  a resource that is not listed    no limit for any of its classes

The existing classes are read from the cluster, or from --class-files, so that misspelled ones are errors. --namespace sets the
namespace of the quota.

For an extended resource, Kubernetes also accepts a quota on limits.NAME, but enforces only a quota on requests.NAME.`,
		Example: `  kubectl qos quota -f quota.yaml -n shop | kubectl apply -f -
  kubectl qos quota -f quota.yaml --class-files classes.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, args...)
			if len(o.files) != 1 {
				return program.UsageError(cmd, fmt.Errorf("exactly one FILE is required, not %d; pass it with -f", len(o.files)))
			}
			namespace := ""
			if flag := cmd.Flag("namespace"); flag != nil && flag.Changed {
				namespace = flag.Value.String()
			}
			return o.run(cmd.Context(), namespace)
		},
	}
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "File with the ResourceQuota, or - for standard input.")
	addConvertFlags(cmd.Flags(), &o.classFiles, &o.quiet)
	return cmd
}

func (o *quotaCommand) run(ctx context.Context, namespace string) error {
	manifests, err := readManifests(o.files, false, o.streams.In)
	if err != nil {
		return err
	}
	if len(manifests) != 1 {
		return errors.New("FILE must not be a directory; for a directory, use kubectl qos convert")
	}
	known, err := o.known(ctx, o.classFiles, o.classFiles == "")
	if err != nil {
		return err
	}

	result, err := convert.Quota(manifests[0].name, manifests[0].text, known, namespace)
	if err := o.printOutcome(err, o.quiet, result); err != nil {
		return err
	}
	_, err = o.streams.Out.Write(result.Text)
	return err
}
