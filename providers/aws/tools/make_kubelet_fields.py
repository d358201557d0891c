"""Write `kubelet/fields.json`: KubeletConfiguration v1beta1's fields, types.

There is no Python type for it. Go's own is asked, by reflection over the module k8s.io/kubelet of one
release of Kubernetes; `go` and its module proxy are needed:

    python providers/aws/tools/make_kubelet_fields.py v0.36.3
"""
# ruff: noqa: INP001 - a script, not a module

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).parents[1] / "karpenter_provider_aws" / "kubelet" / "fields.json"
MODULE: Final = "k8s.io/kubelet"

# A type that reads JSON in its own way is known by its name; `kubelet/fields.py` knows what each takes.
PROGRAM: Final = """
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

var reader = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

func shape(t reflect.Type) any {
	if t.Kind() == reflect.Pointer {
		return shape(t.Elem())
	}
	if reflect.PointerTo(t).Implements(reader) {
		return t.Name()
	}
	switch t.Kind() {
	case reflect.Struct:
		return map[string]any{"fields": fields(t)}
	case reflect.Slice:
		return map[string]any{"list": shape(t.Elem())}
	case reflect.Map:
		return map[string]any{"map": shape(t.Elem())}
	}
	return t.Kind().String()
}

func fields(t reflect.Type) map[string]any {
	found := map[string]any{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && (name == "" || strings.Contains(options, "inline")) {
			for inner, its := range fields(field.Type) {
				found[inner] = its
			}
		} else if name != "-" && field.IsExported() {
			found[name] = shape(field.Type)
		}
	}
	return found
}

func main() {
	document := fields(reflect.TypeOf(v1beta1.KubeletConfiguration{}))
	if err := json.NewEncoder(os.Stdout).Encode(document); err != nil {
		panic(err)
	}
}
"""


def fields_of(version: str) -> dict[str, object]:
    """Ask Go for the fields, by name: the name of a type, or what it is made of."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("go is needed")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "main.go").write_text(PROGRAM, encoding="utf-8")
        for arguments in (
            ["mod", "init", "fields"],
            ["get", f"{MODULE}/config/v1beta1@{version}"],
            ["mod", "tidy"],
        ):
            subprocess.run([go, *arguments], cwd=folder, check=True)  # noqa: S603
        done = subprocess.run([go, "run", "."], cwd=folder, check=True, capture_output=True)  # noqa: S603
    return json.loads(done.stdout)


if __name__ == "__main__":
    release = sys.argv[1]
    document = {"source": f"{MODULE} {release}", "fields": fields_of(release)}
    TARGET.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
