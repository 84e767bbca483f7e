// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/intel/goresctrl/pkg/blockio"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Config is a parsed blockio section.
type Config struct{ classes []class }

// class is a list of items, of which later ones override earlier ones.
type class struct {
	name  string
	items []item
}

// item gives values to some devices or, without a list of devices, a weight to all.
type item struct {
	devices []string
	// listed: there is a list of devices, be it an empty one.
	listed bool
	// rates by kind; nil: not mentioned, so that an earlier item's value stays.
	rates [rateKinds]*uint64
	// weight is goresctrl's, 10 to 1000; 0: not mentioned.
	weight uint64
	field  string
	line   int
}

// ClassNames returns the names of the classes, sorted.
func (c *Config) ClassNames() []string {
	names := make([]string, len(c.classes))
	for i, class := range c.classes {
		names[i] = class.name
	}
	return names
}

// Parse reads goresctrl's blockio configuration, strictly, and checks what can be checked without the machine. Each problem
// is a *classes.FieldError, with lines counted from the start of the section.
func Parse(section []byte) (classes.BackendConfig, error) {
	places, err := locate(section)
	if err != nil {
		return nil, err
	}
	var raw blockio.Config
	if err := yaml.UnmarshalStrict(section, &raw); err != nil {
		return nil, places.syntaxError(err)
	}
	config := &Config{}
	var problems []error
	for name, parameters := range raw.Classes {
		parsed, err := parseClass(name, parameters, places)
		problems = append(problems, err)
		config.classes = append(config.classes, parsed)
	}
	slices.SortFunc(config.classes, func(a, b class) int { return cmp.Compare(a.name, b.name) })
	if err := joinByLine(problems); err != nil {
		return nil, err
	}
	return config, nil
}

// joinByLine joins errors in the order of the file; they come from a map.
func joinByLine(problems []error) error {
	flat := classes.SplitErrors(errors.Join(problems...))
	line := func(err error) int {
		var problem *classes.FieldError
		if errors.As(err, &problem) {
			return problem.Line
		}
		return 0
	}
	slices.SortStableFunc(flat, func(a, b error) int { return cmp.Or(cmp.Compare(line(a), line(b)), cmp.Compare(a.Error(), b.Error())) })
	return errors.Join(flat...)
}

func parseClass(name string, parameters []blockio.DevicesParameters, places places) (class, error) {
	parsed := class{name: name}
	var problems []error
	for i, raw := range parameters {
		field := fmt.Sprintf("%s.%s[%d]", classesField, name, i)
		parser := itemParser{places: places, item: item{
			devices: raw.Devices, listed: raw.Devices != nil, field: field, line: places.line(field)}}
		parser.parse(raw)
		problems = append(problems, parser.problems...)
		parsed.items = append(parsed.items, parser.item)
	}
	return parsed, errors.Join(problems...)
}

type itemParser struct {
	item     item
	places   places
	problems []error
}

// rateFields are the names of the rates in goresctrl's configuration.
func rateFields() [rateKinds]string {
	return [rateKinds]string{"ThrottleReadBps", "ThrottleWriteBps", "ThrottleReadIOPS", "ThrottleWriteIOPS"}
}

func (p *itemParser) parse(raw blockio.DevicesParameters) {
	throttles := [rateKinds]string{raw.ThrottleReadBps, raw.ThrottleWriteBps, raw.ThrottleReadIOPS, raw.ThrottleWriteIOPS}
	for kind, text := range throttles {
		if text == "" {
			continue
		}
		field := rateFields()[kind]
		p.item.rates[kind] = p.quantity(field, text, 0, maxRate(kind))
		if !p.item.listed {
			p.complain(field, "throttles no device; list them in Devices")
		}
	}
	if raw.Weight != "" {
		if weight := p.quantity("Weight", raw.Weight, minWeight, maxWeight); weight != nil {
			p.item.weight = *weight
		}
	}
	p.checkDevices()
}

func (p *itemParser) checkDevices() {
	for i, pattern := range p.item.devices {
		field := fmt.Sprintf("Devices[%d]", i)
		if _, err := path.Match(pattern, ""); err != nil {
			p.complain(field, fmt.Sprintf("%q is not a file name pattern; write one like /dev/sd[a-z]", pattern))
		} else if !strings.HasPrefix(pattern, "/") {
			p.complain(field, fmt.Sprintf("%q is not an absolute path; write one like /dev/sd[a-z]", pattern))
		}
	}
}

func (p *itemParser) quantity(field, text string, least, most uint64) *uint64 {
	value, err := parseQuantity(text, least, most)
	if err != nil {
		p.complain(field, err.Error())
		return nil
	}
	return &value
}

func (p *itemParser) complain(field, problem string) {
	p.problems = append(p.problems, p.places.fieldError(p.item.field+"."+field, problem))
}
