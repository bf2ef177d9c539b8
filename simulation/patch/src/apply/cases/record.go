//go:build ignore

// Record runs scripts of writes with upstream's field manager, types and scheme, and writes the results: the entries of
// managedFields after each write, and the error messages. The scripts are part of this program.
//
//	cd tests/control-plane
//	go run ../../simulation/patch/src/apply/cases/record.go "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)" \
//	  >../../simulation/patch/src/apply/cases/field_manager.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// One write. An update's object is a merge patch over the live object.
type step struct {
	Operation   string   `json:"operation"`
	Manager     string   `json:"manager"`
	Subresource string   `json:"subresource,omitempty"`
	Reset       []string `json:"reset,omitempty"`
	Object      string   `json:"-"`
}

type script struct {
	Name  string
	File  string
	Kind  schema.GroupVersionKind
	Steps []step
}

var deployments = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
var pods = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
var services = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
var configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","labels":{"app":"web"}},
"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},
"spec":{"containers":[{"name":"nginx","image":"nginx:1.14","ports":[{"containerPort":80}]}]}}}}`

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","generateName":"web-","namespace":"shop","labels":{"app":"web"},
"finalizers":["example.com/a"],"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u-1","controller":true,"blockOwnerDeletion":true}]},
"spec":{"volumes":[{"name":"data","emptyDir":{}},{"name":"conf","configMap":{"name":"conf"}}],
"containers":[{"name":"nginx","image":"nginx:1.14","env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
"resources":{"limits":{"cpu":"100m"},"requests":{"cpu":"50m"}},"volumeMounts":[{"name":"data","mountPath":"/data"}],
"ports":[{"containerPort":80},{"containerPort":53,"protocol":"UDP","name":"dns"}],"readinessProbe":{"httpGet":{"path":"/","port":80}}},
{"name":"side","image":"side:1"}],"nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"a","operator":"Exists"}]}}`

const podStatus = `{"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}],"hostIP":"1.1.1.1","startTime":"2026-01-01T00:00:00Z",
"conditions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"}],
"containerStatuses":[{"name":"nginx","ready":true,"restartCount":0,"image":"nginx:1.14","imageID":"x","started":true,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}`

const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"dns","namespace":"shop"},"spec":{"selector":{"app":"dns"},
"ports":[{"name":"udp","port":53,"protocol":"UDP"},{"name":"tcp","port":53}]}}`

var scripts = []script{
	{"a deployment that lives", "apis__apps__v1", deployments, []step{
		{"create", "kubectl-create", "", []string{"status"}, deployment},
		{"update", "controller", "status", []string{"spec", "metadata.labels"}, `{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"1"}},"status":{"observedGeneration":1,"replicas":3,"conditions":[{"type":"Available","status":"True","lastUpdateTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`},
		{"update", "scaler", "scale", nil, `{"spec":{"replicas":5}}`},
		{"update", "editor", "", []string{"status"}, `{"metadata":{"labels":null,"generation":2},"spec":{"strategy":{"type":"Recreate","rollingUpdate":null},"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.15"},{"name":"side","image":"side:1"}]}}}}`},
		{"update", "nobody", "", []string{"status"}, `{}`},
		{"apply", "ci", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":4}}`},
		{"force", "ci", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","labels":{"team":"a"}},"spec":{"replicas":4,"template":{"spec":{"containers":[{"name":"log","image":"log:1","resources":{"limits":{"memory":"1Gi"}}}]}}}}`},
		{"apply", "ci", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","labels":{"team":"a"}},"spec":{"replicas":4,"template":{"spec":{"containers":[{"name":"log","image":"log:1","resources":{"limits":{"memory":"1Gi"}}}]}}}}`},
		{"apply", "second", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":4}}`},
		{"apply", "ci", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.15"}]}}}}`},
		{"apply", "third", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","annotations":{"a":"b"}},"spec":{"replicas":1,"minReadySeconds":3,"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:2"},{"name":"side","image":"side:2"}]}}}}`},
		{"apply", "third", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicaz":1}}`},
		{"apply", "third", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"a"},{"name":"a"}],"volumes":[{"emptyDir":{}}]}}}}`},
		{"apply", "third", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":"one","paused":3,"template":[1]}}`},
		{"apply", "third", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","managedFields":[]},"spec":{"paused":true}}`},
		{"apply", "status-applier", "status", []string{"spec", "metadata.labels"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"paused":true},"status":{"readyReplicas":2}}`},
		{"update", "resetter", "", []string{"status"}, `{"metadata":{"managedFields":[]}}`},
		{"update", "editor", "", []string{"status"}, `{"spec":{"replicas":9}}`},
		{"apply", "ci", "", []string{"status"}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":9}}`},
	}},
	{"a pod that lives", "api__v1", pods, []step{
		{"create", "kube-controller-manager", "", []string{"status"}, pod},
		{"update", "kube-scheduler", "binding", nil, `{"spec":{"nodeName":"n1"}}`},
		{"update", "kubelet", "status", []string{"spec", "metadata.deletionTimestamp"}, podStatus},
		{"update", "kubelet", "status", []string{"spec", "metadata.deletionTimestamp"}, `{"status":{"phase":"Succeeded","containerStatuses":null,"podIP":null}}`},
		{"update", "label", "", []string{"status"}, `{"metadata":{"labels":{"x":"y"},"finalizers":["example.com/b"]}}`},
		{"update", "label", "", []string{"status"}, `{"metadata":{"labels":{"x":null},"finalizers":null,"ownerReferences":null}}`},
	}},
	{"a service that is applied from the beginning", "api__v1", services, []step{
		{"apply-create", "kubectl", "", []string{"status"}, service},
		{"apply", "kubectl", "", []string{"status"}, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"dns","namespace":"shop"},"spec":{"ports":[{"name":"udp","port":53,"protocol":"UDP"},{"name":"web","port":80,"targetPort":"http"}]}}`},
		{"update", "kubectl", "", []string{"status"}, `{"spec":{"selector":{"app":"other"},"ports":[{"name":"web","port":80,"targetPort":8080}]}}`},
		{"apply", "kubectl", "", []string{"status"}, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"dns","namespace":"shop"},"spec":{"ports":[{"name":"web","port":80,"targetPort":"http"}]}}`},
		{"apply", "kubectl", "", []string{"status"}, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"dns","namespace":"shop"},"spec":{"ports":[{"name":"web","port":80},{"name":"web2","port":80,"protocol":"TCP"}]}}`},
		{"force", "other", "", []string{"status"}, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"dns","namespace":"shop"},"spec":{"selector":null,"ports":null}}`},
	}},
	{"a config map that client-side apply made", "api__v1", configMaps, []step{
		{"create", "kubectl-client-side-apply", "", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","annotations":{"kubectl.kubernetes.io/last-applied-configuration":` +
			`"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"},\"data\":{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\"}}"}},"data":{"a":"1","b":"2","c":"3"}}`},
		{"update", "editor", "", nil, `{"data":{"c":"4"}}`},
		{"apply", "other", "", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"9"}}`},
		{"apply", "kubectl", "", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"9","c":"9"}}`},
		{"apply", "kubectl", "", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"<9>","d":"5"}}`},
		{"apply", "kubectl", "", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"d":"6"}}`},
	}},
	{"a config map with many writers", "api__v1", configMaps, []step{
		{"create", "w0", "", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k0":"v"}}`},
		{"update", "w1", "", nil, `{"data":{"k1":"v"}}`},
		{"update", "w2", "", nil, `{"data":{"k2":"v"}}`},
		{"update", "w3", "", nil, `{"data":{"k3":"v"}}`},
		{"update", "w4", "", nil, `{"data":{"k4":"v"}}`},
		{"update", "w5", "", nil, `{"data":{"k5":"v"}}`},
		{"update", "w6", "", nil, `{"data":{"k6":"v"}}`},
		{"update", "w7", "", nil, `{"data":{"k7":"v"}}`},
		{"update", "w8", "", nil, `{"data":{"k8":"v"}}`},
		{"update", "w9", "", nil, `{"data":{"k9":"v"}}`},
		{"update", "w10", "", nil, `{"data":{"k10":"v"}}`},
		{"update", "w11", "", nil, `{"data":{"k11":"v"}}`},
		{"apply", "a", "", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k0":"w","k1":"w","k11":"w"}}`},
		{"update", "w12", "", nil, `{"metadata":{"managedFields":[{"manager":"x","operation":"Broken","apiVersion":"v1"}]},"data":{"k12":"v"}}`},
		{"update", "w13", "", nil, `{"data":null}`},
	}},
}

func main() {
	lines := []string{}
	for _, one := range scripts {
		text, err := json.Marshal(run(one))
		check(err)
		lines = append(lines, string(text))
	}
	_, version, _ := strings.Cut(filepath.Base(os.Args[1]), "@")
	fmt.Printf("{\"origin\":\"what the field manager of Kubernetes %s makes of the scripts in record.go\",\n\"scripts\":[\n%s\n]}\n",
		version, strings.Join(lines, ",\n"))
}

func run(one script) any {
	steps, stamps := []any{}, []string{}
	live, err := legacyscheme.Scheme.New(one.Kind)
	check(err)
	live.GetObjectKind().SetGroupVersionKind(one.Kind)
	for _, step := range one.Steps {
		manager := fieldManager(one, step)
		now := tick()
		stamps = append(stamps, now)
		recorded := map[string]any{"step": step, "now": now}
		var after runtime.Object
		switch step.Operation {
		case "create":
			request := decoded([]byte(step.Object))
			recorded["request"] = external(one, request)
			after = manager.UpdateNoErrors(live, request, step.Manager)
		case "update":
			before, err := json.Marshal(external(one, live))
			check(err)
			request := decoded(merged(before, []byte(step.Object)))
			recorded["request"] = external(one, request)
			if step.Object == `{"metadata":{"managedFields":[]}}` {
				recorded["request"].(map[string]any)["metadata"].(map[string]any)["managedFields"] = []any{}
			}
			after = manager.UpdateNoErrors(live.DeepCopyObject(), request, step.Manager)
		default:
			config := &unstructured.Unstructured{}
			check(config.UnmarshalJSON([]byte(step.Object)))
			recorded["request"] = json.RawMessage(step.Object)
			after, err = manager.Apply(live.DeepCopyObject(), config, step.Manager, step.Operation == "force")
			if err != nil {
				recorded["error"] = err.Error()
				steps = append(steps, recorded)
				continue
			}
		}
		live = after
		accessor, err := meta.Accessor(live)
		check(err)
		accessor.SetUID("u-0")
		recorded["after"] = external(one, live)
		steps = append(steps, recorded)
	}
	text, err := json.Marshal(steps)
	check(err)
	for index, stamp := range stamps {
		text = []byte(strings.ReplaceAll(string(text), stamp, fmt.Sprintf("2026-01-01T01:00:%02dZ", index)))
	}
	return map[string]any{"name": one.Name, "version": one.Kind.GroupVersion().String(), "kind": one.Kind.Kind, "steps": json.RawMessage(text)}
}

// Waits for the next second, so that every step has a unique time.
func tick() string {
	next := time.Now().Truncate(time.Second).Add(time.Second)
	time.Sleep(time.Until(next.Add(10 * time.Millisecond)))
	return next.UTC().Format(time.RFC3339)
}

func fieldManager(one script, step step) *managedfields.FieldManager {
	types, err := managedfields.NewTypeConverter(models(one.File), false)
	check(err)
	reset := fieldpath.NewSet()
	for _, path := range step.Reset {
		parts := []any{}
		for _, part := range strings.Split(path, ".") {
			parts = append(parts, part)
		}
		reset.Insert(fieldpath.MakePathOrDie(parts...))
	}
	version := fieldpath.APIVersion(one.Kind.GroupVersion().String())
	filters := fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{version: reset})
	hub := schema.GroupVersion{Group: one.Kind.Group, Version: runtime.APIVersionInternal}
	manager, err := managedfields.NewDefaultFieldManager(types, runtime.UnsafeObjectConvertor(legacyscheme.Scheme),
		legacyscheme.Scheme, legacyscheme.Scheme, one.Kind, hub, step.Subresource, filters)
	check(err)
	return manager
}

func models(file string) map[string]*spec.Schema {
	text, err := os.ReadFile(filepath.Join(os.Args[1], "api", "openapi-spec", "v3", file+"_openapi.json"))
	check(err)
	var document struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	check(json.Unmarshal(text, &document))
	return document.Components.Schemas
}

func decoded(text []byte) runtime.Object {
	object, _, err := legacyscheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	check(err)
	return object
}

func external(one script, object runtime.Object) any {
	text, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(one.Kind.GroupVersion()), object)
	check(err)
	var out any
	check(json.Unmarshal(text, &out))
	return out
}

func merged(object, patch []byte) []byte {
	var one, other any
	check(json.Unmarshal(object, &one))
	check(json.Unmarshal(patch, &other))
	text, err := json.Marshal(over(one, other))
	check(err)
	return text
}

// JSON merge patch.
func over(object, patch any) any {
	changes, isMap := patch.(map[string]any)
	if !isMap {
		return patch
	}
	out, isMap := object.(map[string]any)
	if !isMap {
		out = map[string]any{}
	}
	for name, change := range changes {
		if change == nil {
			delete(out, name)
		} else {
			out[name] = over(out[name], change)
		}
	}
	return out
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
