// Command describe prints what upstream's Go code knows of its API types and its published
// descriptions leave out: which fields are written when they are empty, which values are
// enumerated, and what upstream's defaulting puts where nothing was given.
//
// Defaults are found by experiment. Objects of every kind are filled at random, defaulted by
// upstream's own scheme, and compared with what they were. A field that got the same value
// wherever it was empty has a default; one that got it below some fields and not below others has
// a particular default there; all others are reported as conditional. The seed is fixed and the number of experiments large, so the answer is a
// function of upstream's version.
//
// The output is JSON, for `cargo xtask describe`. With the argument `internal` it is a table of the
// internal types that messages of upstream show.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// field is what is printed about one field.
type field struct {
	Presence string          `json:"presence,omitempty"`
	Default  json.RawMessage `json:"default,omitempty"`
	Enum     []any           `json:"enum,omitempty"`
	// With are the defaults of fields inside that are the type's only where it lies here.
	With map[string]json.RawMessage `json:"with,omitempty"`
	// Position is the place of the field in the order of declaration.
	Position int `json:"position"`
	// Go is the field's type if it is a named type and not a struct.
	Go string `json:"go,omitempty"`
	// In are the embedded structs that declare the field.
	In string `json:"in,omitempty"`
}

// conditional is a field whose default depends on something.
type conditional struct {
	Field string `json:"field"`
	Found string `json:"found"`
}

type facts struct {
	Types       map[string]map[string]*field `json:"types"`
	Conditional []conditional                `json:"conditional"`
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "internal" {
		printInternal()
		return
	}
	scheme := legacyscheme.Scheme
	apiextensions.Install(scheme)
	apiregistration.Install(scheme)
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) })
	kinds := servedKinds(scheme)

	types := newTypes(definitions)
	for _, kind := range kinds {
		types.describe(typeOf(scheme, kind))
	}
	found := experiment(scheme, kinds, types)
	types.take(found)
	out := facts{Types: types.fields, Conditional: found.conditional(definitions)}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// servedKinds are the kinds in versions that are neither alpha nor beta, in order, without those
// that only wrap others.
func servedKinds(scheme *runtime.Scheme) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for kind := range scheme.AllKnownTypes() {
		common := kind.Kind == "DeleteOptions" || kind.Kind == "Status"
		switch {
		case kind.Version == runtime.APIVersionInternal, strings.Contains(kind.Version, "alpha"), strings.Contains(kind.Version, "beta"):
		case common && (kind.Group != "" || kind.Version != "v1"):
		case !common && strings.HasSuffix(kind.Kind, "Options"), strings.HasSuffix(kind.Kind, "List"):
		case kind.Kind == metav1.WatchEventKind, kind.Group == "admission.k8s.io", kind.Group == "meta.k8s.io":
		case kind.Group == "imagepolicy.k8s.io", strings.HasPrefix(kind.Kind, "API") && kind.Group == "":
		default:
			kinds = append(kinds, kind)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })
	return kinds
}

// definition finds the definition of a field by upstream's generator.
func definition(definitions map[string]common.OpenAPIDefinition, name, field string) (spec.Schema, bool) {
	of, ok := definitions[name]
	if !ok {
		return spec.Schema{}, false
	}
	found, ok := of.Schema.Properties[field]
	return found, ok
}
