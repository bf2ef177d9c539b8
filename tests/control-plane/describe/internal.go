package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/policy"
)

// shown are the internal types that upstream prints in messages.
var shown = []reflect.Type{
	reflect.TypeFor[core.PodTemplateSpec](),
	reflect.TypeFor[core.PersistentVolumeClaimSpec](),
	reflect.TypeFor[batch.SuccessPolicy](),
	reflect.TypeFor[batch.PodFailurePolicy](),
	reflect.TypeFor[core.ServicePort](),
	reflect.TypeFor[core.NodeAddress](),
	reflect.TypeFor[core.Taint](),
	reflect.TypeFor[core.PodIP](),
	reflect.TypeFor[core.HostIP](),
	reflect.TypeFor[apps.DaemonSetUpdateStrategy](),
	reflect.TypeFor[apps.StatefulSetUpdateStrategy](),
	reflect.TypeFor[policy.PodDisruptionBudgetSpec](),
}

// spelled are the types with a custom JSON form.
var spelled = map[reflect.Type]bool{
	reflect.TypeFor[resource.Quantity]():  true,
	reflect.TypeFor[metav1.Time]():        true,
	reflect.TypeFor[metav1.FieldsV1]():    true,
	reflect.TypeFor[intstr.IntOrString](): true,
}

// printInternal writes the internal types: `struct TYPE`, then one `NAME TYPE [optional]` a line, with the names in JSON.
func printInternal() {
	known := map[reflect.Type]bool{}
	for _, of := range shown {
		printType(of, known)
	}
}

func printType(of reflect.Type, known map[reflect.Type]bool) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		printType(of.Elem(), known)
		return
	case reflect.Struct:
	default:
		return
	}
	if known[of] || spelled[of] {
		return
	}
	known[of] = true
	fmt.Printf("struct %s\n", of)
	all := members(of)
	for _, member := range all {
		mark := ""
		if member.omitZero || member.omitEmpty && member.of.Kind() != reflect.Struct {
			mark = " optional"
		}
		fmt.Printf("%s %s%s\n", member.name, notation(member.of), mark)
	}
	for _, member := range all {
		printType(member.of, known)
	}
}

// notation is the form of a type: named scalars are what they are made of.
func notation(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Pointer:
		return "*" + notation(of.Elem())
	case reflect.Slice:
		return "[]" + notation(of.Elem())
	case reflect.Map:
		return "{}" + notation(of.Elem())
	case reflect.Struct:
		return of.String()
	case reflect.String, reflect.Bool:
		return of.Kind().String()
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8:
		return strings.TrimRight(of.Kind().String(), "0123456789")
	}
	fmt.Fprintln(os.Stderr, "no notation for", of)
	os.Exit(1)
	return ""
}
