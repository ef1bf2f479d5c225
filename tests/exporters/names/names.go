// Names metrics as Prometheus and the collector of OpenTelemetry do: for each line of a name, a
// unit and a kind, the name in Prometheus.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/otlptranslator"
)

func main() {
	namer := otlptranslator.MetricNamer{WithMetricSuffixes: true}
	kinds := map[string]otlptranslator.MetricType{
		"counter":   otlptranslator.MetricTypeMonotonicCounter,
		"gauge":     otlptranslator.MetricTypeGauge,
		"histogram": otlptranslator.MetricTypeHistogram,
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		of := strings.Split(lines.Text(), " ")
		name, err := namer.Build(otlptranslator.Metric{Name: of[0], Unit: of[1], Type: kinds[of[2]]})
		if err != nil {
			panic(err)
		}
		fmt.Println(name)
	}
}
