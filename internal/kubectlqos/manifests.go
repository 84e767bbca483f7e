// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

type manifest struct {
	name string
	// path is the file's path without symbolic links. It is empty for standard input.
	path string
	text []byte
}

// readManifests reads the named files and directories. It reads each file only once. Without names, it reads standard input.
func readManifests(names []string, recursive bool, stdin io.Reader) ([]manifest, error) {
	if len(names) == 0 {
		names = []string{stdinName}
	}

	var all []manifest
	for _, name := range names {
		if name == stdinName {
			text, err := io.ReadAll(stdin)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			all = append(all, manifest{name: "stdin", text: text})
			continue
		}
		files, err := manifestFiles(name, recursive)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			m, err := readManifest(file)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(all, func(other manifest) bool { return other.path == m.path }) {
				all = append(all, m)
			}
		}
	}
	return all, nil
}

func readManifest(name string) (manifest, error) {
	path, err := filepath.EvalSymlinks(name)
	if err != nil {
		return manifest{}, err
	}
	text, err := os.ReadFile(path)
	return manifest{name, path, text}, err
}

// manifestFiles returns the named file or, for a directory, the manifests in it. It skips symbolic links in the
// directory, because they may lead out of the directory.
func manifestFiles(name string, recursive bool) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}

	var files []string
	links := 0
	root := filepath.Clean(name) + string(filepath.Separator) // WalkDir follows a link to a directory only if the path ends with a separator
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && !recursive:
			return fs.SkipDir
		case entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
		case entry.Type()&fs.ModeSymlink != 0:
			links++
		default:
			files = append(files, path)
		}
		return nil
	})
	switch {
	case err == nil && len(files) == 0 && links > 0:
		return nil, fmt.Errorf("%s has only symbolic links, and links in a directory are not followed; pass the files themselves", name)
	case err == nil && len(files) == 0:
		return nil, fmt.Errorf("%s has no *.yaml, *.yml or *.json; pass another directory, or use --recursive", name)
	}
	return files, err
}

// replaceFiles writes the changed files. It first writes all new files next to the old ones, so that a failed write
// leaves all old files unchanged. Then it replaces the old files.
func replaceFiles(manifests []manifest, texts [][]byte) (err error) {
	fresh := map[string]string{} // names of the new files, by path of the old file
	defer func() {
		for _, name := range fresh {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	for i, m := range manifests {
		if bytes.Equal(m.text, texts[i]) {
			continue
		}
		name, err := writeBeside(m.path, texts[i])
		if err != nil {
			return fmt.Errorf("%s: %w; nothing was written", m.name, err)
		}
		fresh[m.path] = name
	}

	for _, m := range manifests {
		if name, ok := fresh[m.path]; ok {
			if err := os.Rename(name, m.path); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			delete(fresh, m.path)
		}
	}
	return nil
}

// writeBeside writes a new file in the directory of an existing file, with the mode of that file. It returns the name
// of the new file.
func writeBeside(path string, text []byte) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}

	_, err = file.Write(text)
	err = errors.Join(err, file.Chmod(info.Mode().Perm()), file.Sync(), file.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}
