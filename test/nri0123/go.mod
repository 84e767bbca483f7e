module github.com/qos-nri/qos-nri-plugin/test/nri0123

go 1.26.0

require (
	github.com/containerd/nri v0.12.5
	github.com/qos-nri/qos-nri-plugin v0.0.0
)

require (
	github.com/containerd/log v0.1.0 // indirect
	github.com/containerd/ttrpc v1.2.7 // indirect
	github.com/knqyf263/go-plugin v0.9.0 // indirect
	github.com/opencontainers/runtime-spec v1.3.0 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	github.com/tetratelabs/wazero v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/mod v0.38.0 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/grpc v1.83.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

// containerd 2.4 uses this version. It must be a replacement, because the main module requires a later version.
replace github.com/containerd/nri => github.com/containerd/nri v0.12.3

replace github.com/qos-nri/qos-nri-plugin => ../..
