// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// words returns a flat message of NRI as text: "name=value" for each field that is not zero, in the order of the
// message, e.g. "class=IOPRIO_CLASS_BE priority=4". The elements of a list are separated by commas. Two messages are
// equal if their texts are equal.
func words(message proto.Message) string {
	m := message.ProtoReflect()
	if !m.IsValid() {
		return ""
	}

	var text []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !m.Has(field) {
			continue
		}
		var values []string
		if field.IsList() {
			for list, i := m.Get(field).List(), 0; i < list.Len(); i++ {
				values = append(values, wordOf(field, list.Get(i)))
			}
		} else {
			values = []string{wordOf(field, m.Get(field))}
		}
		text = append(text, string(field.Name())+"="+strings.Join(values, ","))
	}
	return strings.Join(text, " ")
}

func wordOf(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	if field.Kind() == protoreflect.EnumKind {
		if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
			return string(known.Name())
		}
	}
	return value.String()
}

// parseWords reads the text that words returns.
func parseWords(into proto.Message, text string) error {
	m := into.ProtoReflect()
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return fmt.Errorf("%q is no field of %s", name, m.Descriptor().Name())
		}

		add, elements := func(parsed protoreflect.Value) { m.Set(field, parsed) }, []string{value}
		if field.IsList() {
			add, elements = m.Mutable(field).List().Append, strings.Split(value, ",")
		}
		for _, element := range elements {
			parsed, err := parseWord(field, element)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			add(parsed)
		}
	}
	return nil
}

func parseWord(field protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), nil
	case protoreflect.EnumKind:
		if known := field.Enum().Values().ByName(protoreflect.Name(text)); known != nil {
			return protoreflect.ValueOfEnum(known.Number()), nil
		}
		return protoreflect.Value{}, fmt.Errorf("%q is no %s", text, field.Enum().Name())
	case protoreflect.Int32Kind:
		number, err := strconv.ParseInt(text, 10, 32)
		return protoreflect.ValueOfInt32(int32(number)), err
	case protoreflect.Uint64Kind:
		number, err := strconv.ParseUint(text, 10, 64)
		return protoreflect.ValueOfUint64(number), err
	}
	return protoreflect.Value{}, fmt.Errorf("a field of kind %s has no text", field.Kind())
}
