// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image writes container images for tests.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Write writes a container image, as docker save does, whose only program and entry point is a static binary.
func Write(w io.Writer, name, binary string) error {
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	layer, err := writeLayer(program)
	if err != nil {
		return err
	}
	layerDigest := fmt.Sprintf("%x", sha256.Sum256(layer))
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64",
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/workload"}, "Env": []string{"PATH=/"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerDigest}},
	})
	if err != nil {
		return err
	}
	configFile := fmt.Sprintf("%x.json", sha256.Sum256(config))
	layerFile := layerDigest + "/layer.tar"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configFile, "RepoTags": []string{name}, "Layers": []string{layerFile},
	}})
	if err != nil {
		return err
	}
	return writeTar(w, []tarFile{{layerFile, 0o644, layer}, {configFile, 0o644, config}, {"manifest.json", 0o644, manifest}})
}

func writeLayer(program []byte) ([]byte, error) {
	files := []tarFile{{"workload", 0o755, program}}
	for _, directory := range []string{"dev/", "etc/", "proc/", "run/", "sys/", "tmp/"} {
		files = append(files, tarFile{name: directory, mode: 0o755})
	}
	var layer bytes.Buffer
	err := writeTar(&layer, files)
	return layer.Bytes(), err
}

// tarFile is a file, or a directory when its name ends in a slash.
type tarFile struct {
	name string
	mode int64
	data []byte
}

func writeTar(w io.Writer, files []tarFile) error {
	archive := tar.NewWriter(w)
	for _, file := range files {
		if err := archive.WriteHeader(&tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.data))}); err != nil {
			return fmt.Errorf("write %s: %w", file.name, err)
		}
		if _, err := archive.Write(file.data); err != nil {
			return fmt.Errorf("write %s: %w", file.name, err)
		}
	}
	return archive.Close()
}
