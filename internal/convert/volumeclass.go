// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	storageGroup          = "storage.k8s.io"
	storageVersion        = storageGroup + "/v1"
	volumeAttributesClass = "VolumeAttributesClass"
	// defaultClassAnnotation is an annotation of a StorageClass that qos-storage reads.
	defaultClassAnnotation = classes.Domain + "/default-volume-attributes-class"
)

// run has the data that the files of one conversion share.
type run struct {
	Options
	// The map `drivers` has the drivers of the StorageClasses in the input, by name of the StorageClass.
	drivers map[string]string
	// The map `classes` has the VolumeAttributesClasses in the input and those that the conversion adds, by name.
	classes map[string]volumeClass
	// The map `templates` has the specs of the ResourceClaimTemplates in the input and of those that the conversion adds, by namespace/name.
	templates map[string]*yaml.Node
}

// newRun reads the objects of the input that the conversion refers to, if the input can have something to convert.
func newRun(inputs []Input, options Options) *run {
	r := &run{options, map[string]string{}, map[string]volumeClass{}, map[string]*yaml.Node{}}
	storage := slices.ContainsFunc(inputs, func(input Input) bool { return hasClaims(input.Text) })
	for _, input := range inputs {
		if storage && bytes.Contains(input.Text, []byte(storageGroup)) || r.Claims && bytes.Contains(input.Text, []byte(templateKind)) {
			for _, d := range readFile("", input.Text, r).documents { // without those that are not YAML
				r.readObject(d.content())
			}
		}
	}
	return r
}

// readObject reads an object, or the items of a List, if the conversion can refer to it.
func (r *run) readObject(n *yaml.Node) {
	for _, item := range elements(valueOf(n, "items")) {
		r.readObject(item)
	}

	group, _, _ := strings.Cut(stringOf(n, "apiVersion"), "/")
	name := nameOf(n, "")
	switch kind := stringOf(n, "kind"); {
	case group == storageGroup && kind == "StorageClass":
		r.drivers[name] = stringOf(n, "provisioner")
	case group == storageGroup && kind == volumeAttributesClass:
		r.classes[name] = readVolumeClass(n)
	case group == resourceGroup && kind == templateKind:
		r.templates[stringOf(valueOf(n, "metadata"), "namespace")+"/"+name] = valueOf(n, "spec")
	}
}

// volumeClass is a VolumeAttributesClass. A limit is 0 if the class does not have it.
type volumeClass struct {
	driver           string
	iops, throughput int64
}

// name returns the name of the class. Equal classes have equal names in all runs. The name includes the driver, because a
// VolumeAttributesClass is cluster-scoped and belongs to one driver.
func (v volumeClass) name() string {
	var parts []string
	for _, p := range v.parameters() {
		parts = append(parts, p.key, strings.ToLower(p.value.Value))
	}
	name := strings.Join(append(parts, label(v.driver)), "-")
	if len(name) <= content.DNS1123LabelMaxLength {
		return strings.Trim(name, "-")
	}
	return withDigest(name, v.driver)
}

// withDigest returns a DNS label that begins as `name`, and ends with a digest of a text.
func withDigest(name, text string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(text)) // never fails
	end := fmt.Sprintf("-%08x", hash.Sum32())
	return strings.TrimRight(name[:min(len(name), content.DNS1123LabelMaxLength-len(end))], "-") + end
}

// label replaces the characters of a driver's name that a DNS label cannot have.
func label(driver string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return '-'
		}
		return unicode.ToLower(r)
	}, driver)
}

func (v volumeClass) parameters() []field {
	var all []field
	if v.iops > 0 {
		all = append(all, field{key: iopsName, value: newText(strconv.FormatInt(v.iops, 10))})
	}
	if v.throughput > 0 {
		all = append(all, field{key: throughputName, value: newText(withUnit(v.throughput))})
	}
	return all
}

// withUnit writes a number with a binary unit if the result is exact, and otherwise with a decimal unit.
func withUnit(number int64) string {
	if text := resource.NewQuantity(number, resource.BinarySI).String(); strings.HasSuffix(text, "i") {
		return text
	}
	return resource.NewQuantity(number, resource.DecimalSI).String()
}

func (v volumeClass) object(parameters []field) *yaml.Node {
	return newMapping(
		field{key: "apiVersion", value: newText(storageVersion)},
		field{key: "kind", value: newText(volumeAttributesClass)},
		field{key: "metadata", value: newMapping(field{key: "name", value: newText(v.name())})},
		field{key: "driverName", value: newText(v.driver)},
		field{key: "parameters", value: newMapping(parameters...)},
	)
}

// readVolumeClass reads a VolumeAttributesClass. It returns the zero value if a parameter is not a limit.
func readVolumeClass(n *yaml.Node) volumeClass {
	v := volumeClass{driver: stringOf(n, "driverName")}
	for key, value := range fields(valueOf(n, "parameters")) {
		quantity, err := resource.ParseQuantity(value.Value)
		switch {
		case err != nil:
			return volumeClass{}
		case key.Value == iopsName:
			v.iops = quantity.Value()
		case key.Value == throughputName:
			v.throughput = quantity.Value()
		default:
			return volumeClass{}
		}
	}
	return v
}

// noteClass adds notes that say which driver must support the class, and how the claim gets its class.
func (c *claim) noteClass(class volumeClass) {
	if c.run.ModifyVolume {
		c.note("driver %s must support MODIFY_VOLUME and the parameters of %s; drivers define the names and units of their parameters themselves",
			class.driver, class.name())
		return
	}

	c.note("%s limits volumes only if --drivers of qos-storage lists %s; "+
		"if this driver has the capability MODIFY_VOLUME, convert with --modify-volume instead", class.name(), class.driver)
	what := c.object
	if c.field != "" {
		what += ": " + c.field
	}
	const state = "names no class, because a claim with a class gets no new volume of a driver without MODIFY_VOLUME"
	if c.isTemplate {
		c.note("%s %s; for each claim, when it is bound, run: %s; or set the class for new claims in the annotation %s of their StorageClass",
			what, state, c.patch(class), defaultClassAnnotation)
		return
	}
	c.note("%s %s; when the claim is bound, run: %s", what, state, c.patch(class))
}

// patch returns the command that gives the class to a claim.
func (c *claim) patch(class volumeClass) string {
	command := "kubectl patch pvc " + c.pvc
	if namespace := stringOf(valueOf(c.apiObject, "metadata"), "namespace"); namespace != "" {
		command += " -n " + namespace
	}
	return command + fmt.Sprintf(` -p '{"spec":{%q:%q}}'`, volumeAttributesClassName, class.name())
}
