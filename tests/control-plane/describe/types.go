package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/common"
)

// opaque are the types with a custom JSON form; their fields are not inspected.
var opaque = map[reflect.Type]bool{
	reflect.TypeFor[metav1.Time]():                                  true,
	reflect.TypeFor[metav1.MicroTime]():                             true,
	reflect.TypeFor[metav1.Duration]():                              true,
	reflect.TypeFor[metav1.FieldsV1]():                              true,
	reflect.TypeFor[resource.Quantity]():                            true,
	reflect.TypeFor[intstr.IntOrString]():                           true,
	reflect.TypeFor[runtime.RawExtension]():                         true,
	reflect.TypeFor[apiextensionsv1.JSON]():                         true,
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():       true,
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():        true,
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray](): true,
}

// types are the struct types met, by their published names.
type types struct {
	definitions map[string]common.OpenAPIDefinition
	fields      map[string]map[string]*field
	// met keeps the types themselves, for a second look.
	met map[string]reflect.Type
}

func newTypes(definitions map[string]common.OpenAPIDefinition) *types {
	return &types{definitions: definitions, fields: map[string]map[string]*field{}, met: map[string]reflect.Type{}}
}

func typeOf(scheme *runtime.Scheme, kind schema.GroupVersionKind) reflect.Type {
	object, err := scheme.New(kind)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return reflect.TypeOf(object).Elem()
}

// nameOf is the published name of a type: the domain of its package turned round.
func nameOf(of reflect.Type) string {
	domain, rest, _ := strings.Cut(of.PkgPath(), "/")
	parts := strings.Split(domain, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + of.Name()
}

// member is a field as it is seen in JSON; those of inlined structs are their parent's.
type member struct {
	name      string
	index     []int
	of        reflect.Type
	omitEmpty bool
	omitZero  bool
	// in are the names of the embedded structs around it.
	in []string
}

func members(of reflect.Type) []member {
	var all []member
	for i := range of.NumField() {
		plain := of.Field(i)
		name, options, _ := strings.Cut(plain.Tag.Get("json"), ",")
		switch {
		case name == "-" || !plain.IsExported():
		case name == "" && plain.Anonymous:
			for _, inner := range members(plain.Type) {
				inner.index = append([]int{i}, inner.index...)
				inner.in = append([]string{plain.Name}, inner.in...)
				all = append(all, inner)
			}
		default:
			if name == "" {
				name = plain.Name
			}
			has := func(option string) bool { return strings.Contains(","+options+",", ","+option+",") }
			all = append(all, member{name, []int{i}, plain.Type, has("omitempty"), has("omitzero"), nil})
		}
	}
	return all
}

// describe notes a type and all that it is made of.
func (t *types) describe(of reflect.Type) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || opaque[of] {
		return
	}
	name := nameOf(of)
	if _, known := t.met[name]; known {
		return
	}
	t.met[name] = of
	t.fields[name] = map[string]*field{}
	for position, member := range members(of) {
		noted := &field{
			Presence: presence(member), Position: position,
			Go: ownName(member.of), In: strings.Join(member.in, "."),
		}
		if noted.Presence == "always" {
			noted.Default = zero(member.of)
		}
		if defined, ok := definition(t.definitions, name, member.name); ok {
			noted.Enum = defined.Enum
		}
		t.fields[name][member.name] = noted
		t.describe(member.of)
	}
}

// ownName is the name of a type that is no struct and not one of the language's, or of the parts of
// an unnamed one; otherwise empty.
func ownName(of reflect.Type) string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case of.Kind() == reflect.Struct || of.Kind() == reflect.Interface:
	case of.Name() != "" && of.PkgPath() != "":
		return of.String()
	case of.Name() == "" && (of.Kind() == reflect.Slice || of.Kind() == reflect.Map):
		if ownName(of.Elem()) != "" || of.Kind() == reflect.Map && ownName(of.Key()) != "" {
			return of.String()
		}
	}
	return ""
}

// presence returns when a field is written, in the format of the tables.
func presence(member member) string {
	switch member.of.Kind() {
	case reflect.Pointer:
		if member.omitEmpty {
			return ""
		}
		return "null"
	case reflect.Slice, reflect.Map:
		if member.omitEmpty {
			return "nonzero"
		}
		return "null"
	case reflect.Struct:
		switch {
		case member.omitZero:
			return "nonzero"
		// Empty ones write themselves as null.
		case string(zero(member.of)) == "null":
			return "null"
		}
		return "always"
	default:
		if member.omitEmpty || member.omitZero {
			return "nonzero"
		}
		return "always"
	}
}

// zero is how an empty value is written.
func zero(of reflect.Type) json.RawMessage {
	if of.Kind() == reflect.Struct && !opaque[of] {
		return json.RawMessage("{}")
	}
	return written(reflect.New(of).Elem())
}

func written(value reflect.Value) json.RawMessage {
	// Some types write themselves through a pointer only.
	pointer := reflect.New(value.Type())
	pointer.Elem().Set(value)
	text, err := json.Marshal(pointer.Interface())
	if err != nil {
		fmt.Fprintln(os.Stderr, value.Type(), err)
		os.Exit(1)
	}
	return text
}

// take enters the defaults that the experiments found. A struct that upstream would drop as empty
// is there after all if something inside has a default.
func (t *types) take(found *observations) {
	for at, default_ := range found.unconditional() {
		if noted, ok := t.fields[at.of][at.field]; ok {
			noted.Default = default_
		}
	}
	for at, values := range found.particular() {
		if noted, ok := t.fields[at.of][at.field]; ok {
			noted.With = values
		}
	}
	for name, of := range t.met {
		for _, member := range members(of) {
			if noted := t.fields[name][member.name]; noted.Default == nil && t.defaultsInside(member.of) {
				noted.Default = json.RawMessage("{}")
			}
		}
	}
}

func (t *types) defaultsInside(of reflect.Type) bool {
	if of.Kind() != reflect.Struct || opaque[of] {
		return false
	}
	for _, member := range members(of) {
		noted := t.fields[nameOf(of)][member.name]
		if noted.Presence != "always" && (noted.Default != nil || noted.With != nil) || t.defaultsInside(member.of) {
			return true
		}
	}
	return false
}
