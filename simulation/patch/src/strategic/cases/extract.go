//go:build ignore

// Extract writes the case data of upstream's strategic merge tests as JSON, for the tests of `windlass_patch::strategic`.
//
// The output contains only data: documents, patches and expected results. The program copies the package, adds a test
// that writes the tables, and parses tables inside of tests from their source.
//
//	go run extract.go /path/to/k8s.io/apimachinery@v0.36.3 >strategic-merge.json
package main

import (
	"log"
	"os"
	"os/exec"
	"path/filepath"
)

const recorder = `package strategicpatch

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type object = map[string]any

func TestExtract(t *testing.T) {
	tables := object{"origin": os.Getenv("ORIGIN")}
	for name, data := range map[string][]byte{
		"customStrategicMergePatchTestCaseData": customStrategicMergePatchTestCaseData,
		"createStrategicMergePatchTestCaseData": createStrategicMergePatchTestCaseData,
	} {
		var table struct{ TestCases []object }
		if err := yaml.Unmarshal(data, &table); err != nil {
			t.Fatal(err)
		}
		tables[name] = table.TestCases
	}
	for name, cases := range map[string][]StrategicMergePatchRawTestCase{
		"customStrategicMergePatchRawTestCases": customStrategicMergePatchRawTestCases,
		"strategicMergePatchRawTestCases":       strategicMergePatchRawTestCases,
		"replaceRawExtensionPatchTestCases":     replaceRawExtensionPatchTestCases,
	} {
		tables[name] = raw(t, cases)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "patch_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	tables["numberConversion"] = local(t, file, "TestNumberConversion")
	tables["unknownField"] = local(t, file, "TestUnknownField")
	out, err := json.MarshalIndent(tables, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("OUTPUT"), append(out, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func raw(t *testing.T, cases []StrategicMergePatchRawTestCase) []object {
	var table []object
	for _, c := range cases {
		row := object{"description": c.Description}
		if c.ExpectedError != "" {
			row["expectedError"] = c.ExpectedError
		}
		for field, data := range map[string][]byte{
			"original": c.Original, "modified": c.Modified, "current": c.Current, "twoWay": c.TwoWay,
			"threeWay": c.ThreeWay, "result": c.Result, "twoWayResult": c.TwoWayResult,
		} {
			var value any
			if err := yaml.Unmarshal(data, &value); err != nil {
				t.Fatal(err)
			}
			if data != nil {
				row[field] = value
			}
		}
		table = append(table, row)
	}
	return table
}

// local parses the map of cases at the start of a test: JSON fields, and errors as plain text.
func local(t *testing.T, file *ast.File, test string) []object {
	var table []object
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Name.Name != test {
			continue
		}
		cases := function.Body.List[0].(*ast.AssignStmt).Rhs[0].(*ast.CompositeLit)
		for _, entry := range cases.Elts {
			entry := entry.(*ast.KeyValueExpr)
			row := object{"description": text(t, entry.Key)}
			for _, field := range entry.Value.(*ast.CompositeLit).Elts {
				field := field.(*ast.KeyValueExpr)
				name := field.Key.(*ast.Ident).Name
				name = strings.ToLower(name[:1]) + name[1:]
				row[name] = text(t, field.Value)
				if !strings.HasSuffix(name, "Err") {
					row[name] = json.RawMessage(text(t, field.Value))
				}
			}
			table = append(table, row)
		}
	}
	return table
}

func text(t *testing.T, literal ast.Expr) string {
	text, err := strconv.Unquote(literal.(*ast.BasicLit).Value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
`

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run extract.go MODULE >FILE")
	}
	copied, err := os.MkdirTemp("", "strategic-merge")
	check(err)
	defer os.RemoveAll(copied)
	check(os.CopyFS(copied, os.DirFS(os.Args[1])))
	check(filepath.Walk(copied, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode()|0o200)
	}))
	inside := filepath.Join(copied, "pkg", "util", "strategicpatch")
	check(os.WriteFile(filepath.Join(inside, "extract_test.go"), []byte(recorder), 0o644))
	output := filepath.Join(copied, "tables.json")
	test := exec.Command("go", "test", "-run", "^TestExtract$", ".")
	test.Dir, test.Stderr, test.Stdout = inside, os.Stderr, os.Stderr
	origin := "case data of pkg/util/strategicpatch/patch_test.go in " + filepath.Base(os.Args[1]) +
		" of k8s.io, Copyright The Kubernetes Authors, Apache License 2.0; made by extract.go, do not edit"
	test.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "OUTPUT="+output, "ORIGIN="+origin)
	check(test.Run())
	tables, err := os.ReadFile(output)
	check(err)
	_, err = os.Stdout.Write(tables)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
