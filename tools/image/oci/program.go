// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// checkProgram returns an error for a program that cannot run in an image without other files, because it is built for
// another platform or needs a dynamic linker.
func checkProgram(path string, platform v1.Platform) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s is not a program for Linux: %w; build it with GOOS=linux", path, err)
	}
	defer file.Close() //nolint:errcheck // it was only read

	machine, known := map[string]elf.Machine{ // programs for other architectures are not checked
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390,
	}[platform.Architecture]
	if known && file.Machine != machine {
		return fmt.Errorf("%s is built for %s, but the image is for %s; build it with GOARCH=%s",
			path, file.Machine, platform, platform.Architecture)
	}

	isInterpreter := func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }
	if slices.ContainsFunc(file.Progs, isInterpreter) {
		return fmt.Errorf("%s needs a dynamic linker, which the image does not have; build it with CGO_ENABLED=0", path)
	}

	return nil
}

// checkPrograms checks every program. It returns an error if the entrypoint is not one of the programs.
func checkPrograms(s Spec) error {
	var names []string
	for _, path := range s.Programs {
		if err := checkProgram(path, s.Platform); err != nil {
			return err
		}
		name := filepath.Base(path)
		if slices.Contains(names, name) {
			return fmt.Errorf("two programs are named %s; rename one of them", name)
		}
		names = append(names, name)
	}

	if !slices.Contains(names, s.Entrypoint) {
		return fmt.Errorf("-entrypoint %s is not among the programs %v; name one of them", s.Entrypoint, names)
	}

	return nil
}
