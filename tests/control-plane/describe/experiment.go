package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"sort"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/common"
)

const (
	// experiments is how many objects of each kind are filled: enough for every pair of a field
	// and a condition on one other to have been met many times.
	experiments = 1000
	// deepest is the number of times that a type can contain itself.
	deepest = 2
)

// site is a field of a type.
type site struct{ of, field string }

// seen counts the values that defaulting wrote to a field that was empty, by the path of the field.
// The empty text means that no value was written.
type seen map[string]map[string]int

type observations struct {
	at map[site]seen
	// parents are the fields that hold what lies at each path.
	parents map[string]site
}

func experiment(scheme *runtime.Scheme, kinds []schema.GroupVersionKind, types *types) *observations {
	found := &observations{at: map[site]seen{}, parents: map[string]site{}}
	for _, kind := range kinds {
		filler := &filler{chance: rand.New(rand.NewSource(1)), types: types, depth: map[reflect.Type]int{}}
		for i := range experiments {
			filler.rare = i%3 == 0
			object := reflect.New(typeOf(scheme, kind))
			filler.fill(object.Elem(), nil)
			defaulted := object.Interface().(runtime.Object).DeepCopyObject()
			scheme.Default(defaulted)
			found.compare(kind.Kind, object.Elem(), reflect.ValueOf(defaulted).Elem())
		}
	}
	return found
}

// filler fills objects at random.
type filler struct {
	chance *rand.Rand
	// rare sets few pointers of the object: where one of
	// many is meant to, that none does has to be met as well.
	rare  bool
	types *types
	depth map[reflect.Type]int
}

func (f *filler) fill(value reflect.Value, enum []any) {
	of := value.Type()
	if opaque[of] {
		f.fillOpaque(value)
		return
	}
	switch of.Kind() {
	case reflect.Struct:
		if f.depth[of] >= deepest {
			return
		}
		f.depth[of]++
		for _, member := range members(of) {
			f.fill(value.FieldByIndex(member.index), f.types.fields[nameOf(of)][member.name].Enum)
		}
		f.depth[of]--
	case reflect.Pointer:
		if f.present() && f.depth[of.Elem()] < deepest {
			value.Set(reflect.New(of.Elem()))
			f.fill(value.Elem(), enum)
		}
	case reflect.Slice:
		if f.chance.Intn(3) > 0 {
			value.Set(reflect.MakeSlice(of, 1, 1))
			f.fill(value.Index(0), enum)
		}
	case reflect.Map:
		if f.chance.Intn(2) > 0 {
			value.Set(reflect.MakeMap(of))
			key, held := reflect.New(of.Key()).Elem(), reflect.New(of.Elem()).Elem()
			key.SetString("x")
			f.fill(held, nil)
			value.SetMapIndex(key, held)
		}
	default:
		f.fillScalar(value, enum)
	}
}

// present decides whether a pointer points to something.
func (f *filler) present() bool {
	if f.rare {
		return f.chance.Intn(30) == 0
	}
	return f.chance.Intn(3) > 0
}

func (f *filler) fillScalar(value reflect.Value, enum []any) {
	if f.chance.Intn(2) == 0 {
		return
	}
	switch value.Kind() {
	case reflect.String:
		// The last two are kinds of subjects, which upstream does not list as an enumeration.
		choices := []string{"x", "x:1", "/", "User", "Group"}
		for range 2 {
			for _, listed := range enum {
				choices = append(choices, fmt.Sprint(listed))
			}
		}
		value.SetString(choices[f.chance.Intn(len(choices))])
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt([]int64{1, 2, 100}[f.chance.Intn(3)])
	case reflect.Uint8:
		value.SetUint(1)
	case reflect.Float64:
		value.SetFloat(1)
	}
}

func (f *filler) fillOpaque(value reflect.Value) {
	if f.chance.Intn(2) == 0 {
		return
	}
	switch of := value.Addr().Interface().(type) {
	case *metav1.Time:
		*of = metav1.Unix(1, 0)
	case *metav1.MicroTime:
		*of = metav1.NewMicroTime(time.Unix(1, 0))
	case *metav1.Duration:
		of.Duration = time.Second
	case *metav1.FieldsV1:
		*of = *metav1.NewFieldsV1("{}")
	case *resource.Quantity:
		*of = resource.MustParse([]string{"1", "2"}[f.chance.Intn(2)])
	case *intstr.IntOrString:
		*of = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("x")}[f.chance.Intn(2)]
	case *runtime.RawExtension:
		of.Raw = []byte("{}")
	case *apiextensionsv1.JSON:
		of.Raw = []byte("{}")
	}
}

// compare records the value of every field that was empty.
func (o *observations) compare(path string, before, after reflect.Value) {
	of := before.Type()
	if opaque[of] {
		return
	}
	switch of.Kind() {
	case reflect.Struct:
		for _, member := range members(of) {
			was, is := before.FieldByIndex(member.index), after.FieldByIndex(member.index)
			inside := path + "." + member.name
			o.parents[inside] = site{nameOf(of), member.name}
			structured := member.of.Kind() == reflect.Struct && !opaque[member.of]
			if empty(was) && !structured {
				o.note(site{nameOf(of), member.name}, path, is)
			} else {
				o.compare(inside, was, is)
			}
		}
	case reflect.Pointer:
		if !before.IsNil() && !after.IsNil() {
			o.compare(path, before.Elem(), after.Elem())
		}
	case reflect.Slice:
		for i := range min(before.Len(), after.Len()) {
			o.compare(path, before.Index(i), after.Index(i))
		}
	case reflect.Map:
		for _, key := range before.MapKeys() {
			if held := after.MapIndex(key); held.IsValid() {
				o.compare(path, before.MapIndex(key), held)
			}
		}
	}
}

func empty(value reflect.Value) bool {
	if value.Kind() == reflect.Slice || value.Kind() == reflect.Map {
		return value.Len() == 0
	}
	return value.IsZero()
}

func (o *observations) note(at site, path string, after reflect.Value) {
	if o.at[at] == nil {
		o.at[at] = seen{}
	}
	if o.at[at][path] == nil {
		o.at[at][path] = map[string]int{}
	}
	text := ""
	if !empty(after) {
		text = string(written(after))
	}
	if _, isTime := after.Interface().(*metav1.Time); isTime && text != "" {
		o.at[at][path]["the time of the request"]++
		text = ""
	}
	o.at[at][path][text]++
}

// unconditional are the fields that got one and the same value wherever they were empty.
func (o *observations) unconditional() map[site]json.RawMessage {
	all := map[site]json.RawMessage{}
	for at, seen := range o.at {
		if values := seen.values(); len(values) == 1 && values[0] != "" {
			all[at] = json.RawMessage(values[0])
		}
	}
	return all
}

// particular are the values that a field got wherever it was empty below one field, and not, or not
// the same, below others: by the field above, by the field itself.
func (o *observations) particular() map[site]map[string]json.RawMessage {
	all := map[site]map[string]json.RawMessage{}
	for at, seen := range o.at {
		if len(seen.values()) < 2 {
			continue
		}
		for parent, below := range o.byParent(seen) {
			if values := below.values(); len(values) == 1 && values[0] != "" {
				if all[parent] == nil {
					all[parent] = map[string]json.RawMessage{}
				}
				all[parent][at.field] = json.RawMessage(values[0])
			}
		}
	}
	return all
}

func (o *observations) byParent(whole seen) map[site]seen {
	parts := map[site]seen{}
	for path, values := range whole {
		parent := o.parents[path]
		if parts[parent] == nil {
			parts[parent] = seen{}
		}
		parts[parent][path] = values
	}
	return parts
}

// conditional are the fields that got different values, or one and nothing, below one and the same
// field.
func (o *observations) conditional(definitions map[string]common.OpenAPIDefinition) []conditional {
	all := []conditional{}
	for at, seen := range o.at {
		depends := false
		for _, part := range o.byParent(seen) {
			depends = depends || len(part.values()) > 1
		}
		if depends {
			all = append(all, conditional{at.of + "." + at.field, seen.summary()})
			continue
		}
		defined, ok := definition(definitions, at.of, at.field)
		if !ok || defined.Default == nil || len(seen.values()) > 1 || seen.values()[0] != "" {
			continue
		}
		if value := reflect.ValueOf(defined.Default); value.Kind() != reflect.Map && !value.IsZero() {
			all = append(all, conditional{at.of + "." + at.field, fmt.Sprintf("published default %v, not applied", defined.Default)})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Field < all[j].Field })
	return all
}

func (s seen) values() []string {
	set := map[string]bool{}
	for _, values := range s {
		for value := range values {
			set[value] = true
		}
	}
	all := []string{}
	for value := range set {
		all = append(all, value)
	}
	sort.Strings(all)
	return all
}

// summary groups the paths by the observed values.
func (s seen) summary() string {
	paths := map[string][]string{}
	for path, values := range s {
		all := seen{path: values}.values()
		for i := range all {
			if all[i] == "" {
				all[i] = "nothing"
			}
		}
		if len(all) > 4 {
			all = append(all[:4], "...")
		}
		what := strings.Join(all, " or ")
		paths[what] = append(paths[what], path)
	}
	parts := []string{}
	for what, at := range paths {
		sort.Strings(at)
		if len(at) > 4 {
			at = append(at[:4], fmt.Sprintf("and %d more", len(at)-4))
		}
		parts = append(parts, what+" at "+strings.Join(at, ", "))
	}
	sort.Strings(parts)
	return strings.Join(parts, "; ")
}
