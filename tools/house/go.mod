module github.com/qos-nri/qos-nri-plugin/tools/house

go 1.26.0
