//go:build ignore

// Extract writes the data of structured-merge-diff's own merge tests as JSON, for the tests of `windlass_patch::apply`.
//
// The output contains only data: schemas, written objects and expected results. The program copies the module, adds a
// call of `record` to its test fixture, runs upstream's tests, and collects the records by test name.
//
//	go run extract.go /path/to/sigs.k8s.io/structured-merge-diff/v6@v6.3.3 >smd.json
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const recorder = `package fixture

import (
	"encoding/json"
	"fmt"
	"reflect"

	yaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

type object = map[string]any

func (tc TestCase) TestWithConverter(parser Parser, converter merge.Converter) error {
	err := tc.testWithConverter(parser, converter)
	out := object{"fails": err != nil, "object": parsed(tc.Object), "managed": managers(tc.Managed)}
	switch converter.(type) {
	case *dummyConverter, dummyConverter:
	default:
		out["converter"] = fmt.Sprintf("%T", converter)
	}
	if tc.IgnoreFilter != nil {
		ignored := object{}
		for version, filter := range tc.IgnoreFilter {
			excluded := reflect.ValueOf(filter)
			if excluded.Kind() == reflect.Pointer {
				excluded = excluded.Elem()
			}
			if set := excluded.Field(0); set.Type() == reflect.TypeOf(&fieldpath.Set{}) {
				ignored[string(version)] = raw((*fieldpath.Set)(set.UnsafePointer()))
			} else {
				out["filter"] = true
			}
		}
		out["ignored"] = ignored
	}
	if tc.IgnoredFields != nil {
		ignored := object{}
		for version, set := range tc.IgnoredFields {
			ignored[string(version)] = raw(set)
		}
		out["ignored"] = ignored
	}
	versions := map[string]bool{}
	if tc.APIVersion != "" {
		versions[string(tc.APIVersion)] = true
	}
	ops := []any{}
	for _, op := range tc.Ops {
		one := object{}
		switch op := op.(type) {
		case Apply:
			one = step("apply", op.Manager, op.APIVersion, op.Object)
			if op.Conflicts != nil {
				list := []any{}
				for _, conflict := range op.Conflicts {
					list = append(list, object{"manager": conflict.Manager, "path": raw(fieldpath.NewSet(conflict.Path))})
				}
				one["conflicts"] = list
			}
			versions[string(op.APIVersion)] = true
		case ForceApply:
			one = step("force", op.Manager, op.APIVersion, op.Object)
			versions[string(op.APIVersion)] = true
		case Update:
			one = step("update", op.Manager, op.APIVersion, op.Object)
			versions[string(op.APIVersion)] = true
		case ExtractApply:
			one = step("extract", op.Manager, op.APIVersion, op.Object)
			versions[string(op.APIVersion)] = true
		case ChangeParser:
			one = object{"operation": "schema", "schema": generic(op.Parser.Schema)}
		default:
			one = object{"operation": fmt.Sprintf("%T", op)}
		}
		ops = append(ops, one)
	}
	out["operations"] = ops
	types := object{}
	for version := range versions {
		t := parser.Type(version)
		if t.Schema != nil {
			out["schema"] = generic(t.Schema)
			types[version] = generic(t.TypeRef)
		}
	}
	out["types"] = types
	text, failure := json.Marshal(out)
	if failure != nil {
		panic(failure)
	}
	fmt.Printf("\nRECORDED %s\n", text)
	return err
}

func step(operation, manager string, version fieldpath.APIVersion, text typed.YAMLObject) object {
	return object{"operation": operation, "manager": manager, "version": version, "object": parsed(text)}
}

func parsed(text typed.YAMLObject) any {
	if text == "" {
		return nil
	}
	var value any
	if err := yaml.Unmarshal([]byte(FixTabsOrDie(text)), &value); err != nil {
		panic(err)
	}
	return strings(value)
}

func managers(managed fieldpath.ManagedFields) any {
	if managed == nil {
		return nil
	}
	out := object{}
	for name, set := range managed {
		out[name] = object{"version": set.APIVersion(), "set": raw(set.Set())}
	}
	return out
}

func raw(set *fieldpath.Set) json.RawMessage {
	text, err := set.ToJSON()
	if err != nil {
		panic(err)
	}
	return text
}

func generic(value any) any {
	text, err := yaml.Marshal(value)
	if err != nil {
		panic(err)
	}
	var out any
	if err := yaml.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return strings(out)
}

func strings(value any) any {
	switch value := value.(type) {
	case map[any]any:
		out := object{}
		for key, each := range value {
			out[fmt.Sprint(key)] = strings(each)
		}
		return out
	case []any:
		out := []any{}
		for _, each := range value {
			out = append(out, strings(each))
		}
		return out
	}
	return value
}
`

func main() {
	module := os.Args[1]
	copied, err := os.MkdirTemp("", "extract")
	check(err)
	defer os.RemoveAll(copied)
	check(os.CopyFS(copied, os.DirFS(module)))
	check(filepath.Walk(copied, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode()|0o200)
	}))
	fixture := filepath.Join(copied, "internal", "fixture")
	state, err := os.ReadFile(filepath.Join(fixture, "state.go"))
	check(err)
	renamed := bytes.Replace(state, []byte(") TestWithConverter("), []byte(") testWithConverter("), 1)
	check(os.WriteFile(filepath.Join(fixture, "state.go"), renamed, 0o644))
	check(os.WriteFile(filepath.Join(fixture, "record.go"), []byte(recorder), 0o644))

	run(copied, "go", "get", "github.com/google/go-cmp@v0.7.0")
	output := run(copied, "go", "test", "-json", "-run", "Test", "./merge/")
	cases := []map[string]any{}
	for _, line := range bytes.Split(output, []byte("\n")) {
		var event struct{ Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		pending[event.Test] += event.Output
	}
	for test, text := range pending {
		for index, line := range strings.Split(text, "\n") {
			recorded, found := strings.CutPrefix(line, "RECORDED ")
			if !found {
				continue
			}
			one := map[string]any{}
			check(json.Unmarshal([]byte(recorded), &one))
			one["name"] = test
			one["index"] = index
			if _, converts := one["converter"]; converts && len(one["types"].(map[string]any)) > 1 {
				top, _, _ := strings.Cut(test, "/")
				leftOut[top]++
				continue
			}
			cases = append(cases, one)
		}
	}
	write(module, cases)
}

// Output of each test, and the number of its cases that are omitted because they convert between versions.
var pending, leftOut = map[string]string{}, map[string]int{}

// One case per line, by name; schemas are written once, by number.
func write(module string, cases []map[string]any) {
	sortCases(cases)
	schemas, numbers := []string{}, map[string]int{}
	number := func(schema any) int {
		text, err := json.Marshal(schema)
		check(err)
		if _, known := numbers[string(text)]; !known {
			numbers[string(text)] = len(schemas)
			schemas = append(schemas, string(text))
		}
		return numbers[string(text)]
	}
	lines := []string{}
	for _, one := range cases {
		delete(one, "index")
		one["schema"] = number(one["schema"])
		for _, operation := range one["operations"].([]any) {
			if operation := operation.(map[string]any); operation["operation"] == "schema" {
				operation["schema"] = number(operation["schema"])
			}
		}
		text, err := json.Marshal(one)
		check(err)
		lines = append(lines, string(text))
	}
	left, err := json.Marshal(leftOut)
	check(err)
	_, version, _ := strings.Cut(filepath.Base(module), "@")
	fmt.Printf("{\"origin\":\"sigs.k8s.io/structured-merge-diff/v6 %s, merge/*_test.go (Apache-2.0), by extract.go\",\n\"left_out\":%s,\n\"schemas\":[\n%s\n],\n\"cases\":[\n%s\n]}\n",
		version, left, strings.Join(schemas, ",\n"), strings.Join(lines, ",\n"))
}

func sortCases(cases []map[string]any) {
	less := func(a, b map[string]any) bool {
		if a["name"] != b["name"] {
			return a["name"].(string) < b["name"].(string)
		}
		return a["index"].(int) < b["index"].(int)
	}
	for i := range cases {
		for j := i; j > 0 && less(cases[j], cases[j-1]); j-- {
			cases[j], cases[j-1] = cases[j-1], cases[j]
		}
	}
}

func run(dir, name string, arguments ...string) []byte {
	command := exec.Command(name, arguments...)
	command.Dir = dir
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s %v: %v\n%s", name, arguments, err, output)
		os.Exit(1)
	}
	return output
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
