// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"testing"

	"github.com/spf13/cobra"
)

func TestACommandWithoutArgumentsDoesNotGetThoseOfTheProcess(t *testing.T) {
	process := os.Args
	t.Cleanup(func() { os.Args = process })
	os.Args = []string{"qos", "of-the-process"}
	root := &cobra.Command{Use: "qos", Args: NoArguments, Run: func(*cobra.Command, []string) {}}
	if code := Execute(t.Context(), root, nil); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
}
