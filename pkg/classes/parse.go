// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// What class files must say of themselves.
const (
	APIVersion = Domain + "/v1alpha1"
	FileKind   = "QOSClassConfig"
)

// File is a class file.
type File struct {
	Name string
	Data []byte
}

// ResourceConfig is one resource of the class files.
type ResourceConfig struct {
	Resource
	// Kind is the Field of the resource's Kind.
	Kind    string
	Backend BackendConfig
	// File and Line where the resource is defined.
	File string
	Line int
	// ConfigFile is the file that the backend's configuration was read from; empty when it is in the class file.
	ConfigFile string
}

// Config is what all class files say together.
type Config struct {
	Resources []ResourceConfig
}

// Parse reads class files, strictly. readFile gets the paths of configFile fields. The error joins all problems, of
// all files, each a *FieldError.
func Parse(files []File, kinds []Kind, readFile func(path string) ([]byte, error)) (*Config, error) {
	return &Config{}, nil
}
