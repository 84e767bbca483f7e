// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// program is a file of the image or of an archive, with what Go's linker wrote into it.
type program struct {
	name, sha256 string
	// dir is the directory of the program. It ends with a slash.
	dir string
	*debug.BuildInfo
}

// readPrograms reads programs that Go has built.
func readPrograms(files []string) ([]program, error) {
	var programs []program
	for _, file := range files {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("modules in %s: %w", file, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		programs = append(programs, program{name: filepath.Base(file), sha256: fmt.Sprintf("%x", sha256.Sum256(data)), dir: "/", BuildInfo: info})
	}
	return programs, nil
}

// SBOM returns the SBOM of the programs in `dir`, as JSON. `dir` has a directory for each platform, such as linux/amd64. The name of the
// document is the title of `s`.
func SBOM(s Spec, dir string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
	if err != nil {
		return nil, err
	}

	if len(files) == 0 {
		return nil, fmt.Errorf("no programs in %s; build them first", filepath.Join(dir, "OS", "ARCH"))
	}

	programs, err := readPrograms(files)
	if err != nil {
		return nil, err
	}

	all := sha256.New()
	for i, file := range files {
		platform, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		programs[i].dir = filepath.ToSlash(platform) + "/"
		fmt.Fprintln(all, programs[i].dir, programs[i].sha256)
	}

	return json.Marshal(sbom(s, s.Title, hex.EncodeToString(all.Sum(nil)), programs))
}

// sbom lists the programs, and the modules that are linked into them: https://spdx.github.io/spdx-spec/v2.3/
// The parameter `name` is the name of the document. The parameter `id` is unique for the document's content.
func sbom(s Spec, name, id string, programs []program) *spdx.Document {
	document := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      name,
		DocumentNamespace: s.Source + "/spdx/" + id,
		CreationInfo: &spdx.CreationInfo{
			Created:  s.Created.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "tools/image"}},
		},
	}

	modules := map[common.ElementID]bool{}
	for _, p := range programs {
		main := programPackage(s, p)
		document.Packages = append(document.Packages, main)
		document.Relationships = append(document.Relationships, relate("DOCUMENT", common.TypeRelationshipDescribe, main.PackageSPDXIdentifier))
		for _, module := range linked(p.BuildInfo) {
			if !modules[module.PackageSPDXIdentifier] {
				modules[module.PackageSPDXIdentifier] = true
				document.Packages = append(document.Packages, module)
			}
			document.Relationships = append(document.Relationships,
				relate(main.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, module.PackageSPDXIdentifier))
		}
	}

	return document
}

func relate(from common.ElementID, relationship string, to common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: relationship, RefB: common.DocElementID{ElementRefID: to},
	}
}

func programPackage(s Spec, p program) *spdx.Package {
	return &spdx.Package{
		PackageName:             p.name,
		PackageSPDXIdentifier:   elementID("program", strings.TrimPrefix(p.dir, "/")+p.name),
		PackageVersion:          s.Version,
		PackageFileName:         p.dir + p.name,
		PackageDownloadLocation: "NOASSERTION",
		PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: p.sha256}},
		PackageLicenseDeclared:  s.Licenses,
		PrimaryPackagePurpose:   "APPLICATION",
	}
}

// linked returns the Go standard library and the modules that are linked into a program.
func linked(info *debug.BuildInfo) []*spdx.Package {
	packages := []*spdx.Package{modulePackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		packages = append(packages, modulePackage(module.Path, module.Version, module.Sum))
	}
	return packages
}

// modulePackage returns a module with its package URL, which scanners compare with the lists of vulnerabilities. The
// checksum is the one in go.sum.
func modulePackage(path, version, sum string) *spdx.Package {
	result := &spdx.Package{
		PackageName:             path,
		PackageSPDXIdentifier:   elementID("module", path, version),
		PackageVersion:          version,
		PackageDownloadLocation: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: packageURL(path, version),
		}},
	}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) > 0 {
		result.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(hash)}}
	}
	return result
}

// packageURL returns the package URL of a Go module: https://github.com/package-url/purl-spec
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// elementID joins the parts to an identifier with only the characters that SPDX allows.
func elementID(parts ...string) common.ElementID {
	others := regexp.MustCompile(`[^a-zA-Z0-9.-]+`)
	return common.ElementID(strings.TrimRight(others.ReplaceAllString(strings.Join(parts, "-"), "-"), "-"))
}
