//! Compares the JSON of objects in protobuf with upstream's fully populated objects in both formats.
//!
//! Needs the Go modules of the control plane, as the tests of the real server do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use windlass_object::wire::protobuf::Transcoder;

/// Minimum number of kinds.
const ENOUGH: usize = 184;

/// Returns the folder of the objects of the current version.
fn upstream_objects() -> PathBuf {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../control-plane");
    let mut go = Command::new("go");
    go.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "k8s.io/api"]).current_dir(module);
    go.env("GOWORK", "off").env_remove("GOFLAGS");
    let output = go.output().expect("go must be installed");
    let folder = String::from_utf8(output.stdout).expect("a path");
    assert!(!folder.trim().is_empty(), "run `go mod download` in tests/control-plane");
    Path::new(folder.trim()).join("testdata/HEAD")
}

fn in_json(protobuf: &[u8]) -> Value {
    let mut json = Vec::new();
    Transcoder::new().object(protobuf, &mut json).expect("an object in protobuf");
    serde_json::from_slice(&json).expect("valid JSON")
}

#[test]
fn upstream_objects_in_protobuf_equal_their_json() {
    let (mut compared, mut different) = (0, Vec::new());
    for entry in fs::read_dir(upstream_objects()).expect("upstream's objects") {
        let path = entry.expect("a file").path();
        // A watch event has no kind; the decoder of watch streams reads it.
        if path.extension().is_none_or(|it| it != "pb") || path.ends_with("core.v1.WatchEvent.pb") {
            continue;
        }
        let json = fs::read(path.with_extension("json")).expect("the object in JSON");
        let expected: Value = serde_json::from_slice(&json).expect("valid JSON");
        let found = in_json(&fs::read(&path).expect("the object in protobuf"));
        compared += 1;
        if found != expected {
            different.push(format!("{}\n{expected}\n{found}", path.display()));
        }
    }
    assert!(compared >= ENOUGH, "{compared} objects");
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}
