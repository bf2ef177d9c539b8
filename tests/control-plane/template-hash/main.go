// Template-hash prints facts about upstream's hash of pod templates.
//
// `fields` prints the table of Go types below PodTemplateSpec, which `cargo xtask describe` commits. `cases COUNT
// SEED` prints random templates, each in three lines: the hash without a collision count, those with 0 and 1, and the
// template; the hashes of the revision of a StatefulSet without a count and with 1, and its data; the data of the
// revision of a DaemonSet. `quantities COUNT SEED` prints random pairs of quantities as JSON, one pair a line, with the
// results of upstream's operations.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	integers "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/history"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "fields":
		table := &table{seen: map[string]reflect.Type{}}
		return table.print(reflect.TypeFor[corev1.PodTemplateSpec]())
	case len(arguments) == 3:
		count, err := strconv.Atoi(arguments[1])
		if err != nil {
			return err
		}
		seed, err := strconv.ParseInt(arguments[2], 10, 64)
		if err != nil {
			return err
		}
		chance := rand.New(rand.NewSource(seed))
		switch arguments[0] {
		case "cases":
			return cases(count, chance)
		case "quantities":
			return quantityPairs(count, chance)
		}
	}
	return fmt.Errorf("usage: template-hash fields | cases COUNT SEED | quantities COUNT SEED")
}

// special are the types that the printer knows by name.
var special = map[reflect.Type]bool{
	reflect.TypeFor[resource.Quantity]():  true,
	reflect.TypeFor[metav1.Time]():        true,
	reflect.TypeFor[metav1.FieldsV1]():    true,
	reflect.TypeFor[intstr.IntOrString](): true,
}

type table struct{ seen map[string]reflect.Type }

// print writes a type and, after it, each type that it refers to.
func (t *table) print(of reflect.Type) error {
	if of.Name() == "" {
		return t.printParts(of)
	}
	return t.printNamed(of)
}

func (t *table) printParts(of reflect.Type) error {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		return t.print(of.Elem())
	case reflect.Map:
		if err := t.print(of.Key()); err != nil {
			return err
		}
		return t.print(of.Elem())
	}
	return fmt.Errorf("no notation for %s", of)
}

func (t *table) printNamed(of reflect.Type) error {
	if of.PkgPath() == "" || special[of] {
		return nil
	}
	if known, ok := t.seen[of.String()]; ok {
		if known != of {
			return fmt.Errorf("two types are named %s", of)
		}
		return nil
	}
	t.seen[of.String()] = of
	switch of.Kind() {
	case reflect.Struct:
		return t.printStruct(of)
	case reflect.Map:
		fmt.Printf("type %s map[%s]%s\n", of, of.Key(), of.Elem())
		return t.printParts(of)
	}
	fmt.Printf("type %s %s\n", of, of.Kind())
	return nil
}

func (t *table) printStruct(of reflect.Type) error {
	fmt.Printf("struct %s\n", of)
	for index := range of.NumField() {
		field := of.Field(index)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if strings.Contains(options, "inline") || name == "" {
			name = "-"
		}
		fmt.Printf("%s %s %s%s\n", field.Name, name, field.Type, written(field, options))
	}
	for index := range of.NumField() {
		if err := t.print(of.Field(index).Type); err != nil {
			return err
		}
	}
	return nil
}

// written marks a field that JSON contains even if it is empty. The option `omitempty` has no effect on structs.
func written(field reflect.StructField, options string) string {
	optional := strings.Contains(options, "omitempty") && field.Type.Kind() != reflect.Struct
	if optional || strings.Contains(options, "omitzero") || strings.Contains(options, "inline") {
		return ""
	}
	return " always"
}

func cases(count int, chance *rand.Rand) error {
	filler := &filler{chance: chance, depth: map[reflect.Type]int{}}
	for range count {
		filler.sparse = chance.Intn(3) > 0
		var filled corev1.PodTemplateSpec
		filler.fill(reflect.ValueOf(&filled).Elem())
		// The controller manager decodes protobuf.
		bytes, err := filled.Marshal()
		if err != nil {
			return err
		}
		var template corev1.PodTemplateSpec
		if err := template.Unmarshal(bytes); err != nil {
			return err
		}
		zero, one := int32(0), int32(1)
		hashes := []string{
			controller.ComputeHash(&template, nil),
			controller.ComputeHash(&template, &zero),
			controller.ComputeHash(&template, &one),
		}
		text, err := json.Marshal(&template)
		if err != nil {
			return err
		}
		fmt.Printf("%s %s\n", strings.Join(hashes, " "), text)
		if err := revisions(&template); err != nil {
			return err
		}
	}
	return nil
}

var codec = scheme.Codecs.LegacyCodec(appsv1.SchemeGroupVersion)

// revisions prints the data of revisions, as the controllers compute them in functions that they do not export.
func revisions(template *corev1.PodTemplateSpec) error {
	set := appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: *template}}
	encoded, err := runtime.Encode(codec, &set)
	if err != nil {
		return err
	}
	data, err := patch(encoded, json.Unmarshal)
	if err != nil {
		return err
	}
	one, revision := int32(1), appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: data}}
	without, with := history.HashControllerRevision(&revision, nil), history.HashControllerRevision(&revision, &one)
	fmt.Printf("%s %s %s\n", without, with, data)

	daemons := appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: *template}}
	if encoded, err = json.Marshal(&daemons); err != nil {
		return err
	}
	// The controller of DaemonSets keeps integers, the other one turns them into floating-point numbers.
	if data, err = patch(encoded, func(data []byte, into any) error { return integers.Unmarshal(data, into) }); err != nil {
		return err
	}
	fmt.Printf("%s\n", data)
	return nil
}

// patch returns the patch that replaces the template of an object.
func patch(encoded []byte, decode func([]byte, any) error) ([]byte, error) {
	raw := map[string]any{}
	if err := decode(encoded, &raw); err != nil {
		return nil, err
	}
	template := raw["spec"].(map[string]any)["template"].(map[string]any)
	template["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
}

// filler fills values at random.
type filler struct {
	chance *rand.Rand
	sparse bool
	depth  map[reflect.Type]int
}

var quantities = []string{
	"0", "1", "2", "100m", "1500m", "1.5", "250m", "1k", "1000", "64Mi", "100Mi", "128Mi", "1Gi", "1.5Gi", "100Ti", "3Pi",
	"7Ei", "16Ei", "1e3", "12e6", "5n", "0.5n", "1u", "128974848", "1234567890123456789", "98765432109876543210", "-1", "-64Mi",
	"9223372036854775807", "1023", "1025Ki", "3000", "0.1Gi", "12E",
}

var texts = []string{
	"", "a", "web", "x:1", "map[]", "<nil>", "a b", "{}", "\"quoted\"", "a\nb", "<b>&", "é", "\u2028", "名前", "%d", "\\", "Always",
}

func (f *filler) fill(value reflect.Value) {
	switch of := value.Addr().Interface().(type) {
	case *resource.Quantity:
		*of = resource.MustParse(quantities[f.chance.Intn(len(quantities))])
		return
	case *intstr.IntOrString:
		if f.chance.Intn(2) == 0 {
			*of = intstr.FromInt32(f.chance.Int31() - 1<<30)
		} else {
			*of = intstr.FromString(texts[f.chance.Intn(len(texts))])
		}
		return
	case *metav1.Time, *[]metav1.ManagedFieldsEntry:
		// Upstream's hash of a time depends on the process.
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		f.fillStruct(value)
	case reflect.Pointer:
		if value.Type() == reflect.TypeFor[*metav1.Time]() {
			return
		}
		if f.present() {
			value.Set(reflect.New(value.Type().Elem()))
			f.fill(value.Elem())
		}
	case reflect.Slice:
		if f.present() {
			count := f.chance.Intn(3)
			value.Set(reflect.MakeSlice(value.Type(), count, count))
			for index := range count {
				f.fill(value.Index(index))
			}
		}
	case reflect.Map:
		if f.present() {
			f.fillMap(value)
		}
	case reflect.String:
		value.SetString(texts[f.chance.Intn(len(texts))])
	case reflect.Bool:
		value.SetBool(f.chance.Intn(2) == 0)
	case reflect.Int32:
		value.SetInt(int64(f.chance.Int31()) - 1<<30)
	case reflect.Int64:
		value.SetInt(f.chance.Int63() - 1<<62)
	default:
		panic(fmt.Sprintf("cannot fill a %s", value.Type()))
	}
}

func (f *filler) fillStruct(value reflect.Value) {
	if f.depth[value.Type()] > 1 {
		return
	}
	f.depth[value.Type()]++
	for index := range value.NumField() {
		if f.chance.Intn(4) > 0 {
			f.fill(value.Field(index))
		}
	}
	f.depth[value.Type()]--
}

func (f *filler) fillMap(value reflect.Value) {
	of := value.Type()
	value.Set(reflect.MakeMap(of))
	for range f.chance.Intn(4) {
		key, held := reflect.New(of.Key()).Elem(), reflect.New(of.Elem()).Elem()
		key.SetString(texts[f.chance.Intn(len(texts))] + strconv.Itoa(f.chance.Intn(20)))
		f.fill(held)
		value.SetMapIndex(key, held)
	}
}

// present decides whether a pointer, a list or a map has a value.
func (f *filler) present() bool {
	if f.sparse {
		return f.chance.Intn(5) == 0
	}
	return f.chance.Intn(2) == 0
}

// pair is two quantities and the results of upstream's operations; without results if one is malformed.
type pair struct {
	One        string `json:"one"`
	Other      string `json:"other"`
	Error      string `json:"error,omitempty"`
	Canonical  string `json:"canonical"`
	Sum        string `json:"sum"`
	Difference string `json:"difference"`
	Order      int    `json:"order"`
	// Milli is zero for an amount that is too large.
	Milli int64 `json:"milli"`
}

func quantityPairs(count int, chance *rand.Rand) error {
	for range count {
		text, err := json.Marshal(compare(randomQuantity(chance), randomQuantity(chance)))
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", text)
	}
	return nil
}

func compare(one, other string) pair {
	result := pair{One: one, Other: other}
	first, err := resource.ParseQuantity(one)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	second, err := resource.ParseQuantity(other)
	if err != nil {
		result.Other = "1"
		second = resource.MustParse("1")
	}
	sum, difference := first.DeepCopy(), first.DeepCopy()
	sum.Add(second)
	difference.Sub(second)
	result.Canonical, result.Sum, result.Difference = first.String(), sum.String(), difference.String()
	result.Order, result.Milli = first.Cmp(second), first.MilliValue()
	return result
}

var suffixes = []string{
	"", "", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E3", "e-3", "e+6", "e0", "e21",
	"e", "mm", "x", "-1",
}

func randomQuantity(chance *rand.Rand) string {
	var text strings.Builder
	text.WriteString([]string{"", "", "", "-", "+"}[chance.Intn(5)])
	digits := func(most int) {
		for range chance.Intn(most) {
			text.WriteByte("0000123456789"[chance.Intn(13)])
		}
	}
	digits([]int{3, 6, 12, 22}[chance.Intn(4)])
	if chance.Intn(3) == 0 {
		text.WriteByte('.')
		digits(12)
	}
	text.WriteString(suffixes[chance.Intn(len(suffixes))])
	return text.String()
}
