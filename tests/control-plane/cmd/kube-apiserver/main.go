// Command kube-apiserver is the Kubernetes API server, unchanged.
package main

import (
	"os"
	_ "time/tzdata" // CronJob time zones, wherever the machine keeps none.

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
