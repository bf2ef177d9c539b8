//! The table of settings, and the flags, fields and documents made from it.

use std::collections::BTreeSet;
use std::ffi::OsString;

use serde_json::{Value, json};

use super::*;
use crate::command_line::{self, CommandLine};

mod errors;

const FILE_HEADER: &str = "apiVersion: config.windlass.dev/v1alpha1\nkind: ControllerManagerConfiguration\n";

/// Reads a command line, where every file has this content.
fn read(line: &[&str], file: &str) -> Result<Settings, String> {
    let words = std::iter::once("windlass").chain(line.iter().copied()).map(OsString::from);
    match command_line::parse(words, &|_| Ok(file.as_bytes().to_vec())) {
        Ok(CommandLine::Manage(settings)) => Ok(*settings),
        Ok(other) => panic!("{line:?}: {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn settings(line: &[&str], file: &str) -> Settings {
    read(line, file).unwrap_or_else(|error| panic!("{line:?} with {file}: {error}"))
}

/// Returns a file with one field.
fn file_with(field: &str, value: &str) -> String {
    let names: Vec<_> = field.split('.').collect();
    let lines = names.iter().enumerate().map(|(depth, name)| format!("{:1$}{name}:", "", depth * 2));
    format!("{FILE_HEADER}{} {value}\n", lines.collect::<Vec<_>>().join("\n"))
}

/// Returns a value that is not the default, as a flag and as a field. A new unit needs a new line.
fn other_value(setting: &Setting) -> (&'static str, Value) {
    match (setting.flag.as_str(), setting.unit) {
        ("controllers", _) => ("-endpoint,*", json!(["-endpoint", "*"])),
        ("authorization-always-allow-paths", _) => ("/livez,/pages/*", json!(["/livez", "/pages/*"])),
        ("leader-elect-resource-lock", _) => ("leases", json!("leases")),
        (_, "BOOL") if setting.default == "true" => ("false", json!(false)),
        (_, "BOOL") => ("true", json!(true)),
        (_, "FILE" | "DIRECTORY") => {
            ("/a folder/\u{e9} \"'#: {}[],\\", json!("/a folder/\u{e9} \"'#: {}[],\\"))
        }
        (_, "URL") => ("https://example.com:6443", json!("https://example.com:6443")),
        (_, "RATE") => ("0.5", json!(0.5)),
        (_, "REQUESTS" | "WORKERS" | "THREADS" | "SHARDS") => ("7", json!(7)),
        (_, "PODS") => ("-7", json!(-7)),
        (_, "LEVEL") => ("9", json!(9)),
        (_, "PORT") => ("0", json!(0)),
        (_, "DURATION") => ("1m31s", json!("1m31s")),
        (_, "NAME") => ("another.name-1", json!("another.name-1")),
        (_, "NAMESPACES") => ("blue,green-1", json!(["blue", "green-1"])),
        (_, "ADDRESS") => ("::1", json!("::1")),
        (_, "FORMAT") => ("json", json!("json")),
        (_, "GATES") => (
            "AllAlpha=true,PodDeletionCost=false,TaintTolerationComparisonOperators=false",
            json!({"AllAlpha": true, "PodDeletionCost": false, "TaintTolerationComparisonOperators": false}),
        ),
        (flag, unit) => panic!("--{flag}: add another value in {unit}"),
    }
}

fn field_of<'a>(file: &'a Value, field: &str) -> &'a Value {
    field.split('.').fold(file, |section, name| &section[name])
}

#[test]
fn flags_and_fields_are_unique() {
    let flags: BTreeSet<_> = TABLE.iter().map(|setting| &setting.flag).collect();
    let fields: BTreeSet<_> = TABLE.iter().map(|setting| setting.field).collect();
    assert_eq!((flags.len(), fields.len()), (TABLE.len(), TABLE.len()));
    for field in &fields {
        let below = format!("{field}.");
        assert!(!fields.iter().any(|other| other.starts_with(&below)), "{field} is a section and a setting");
    }
}

// parity: named-flag-sets
#[test]
fn help_lists_every_setting_with_default_field_and_choices() {
    let words = ["windlass", "--help"].map(OsString::from);
    let Ok(CommandLine::Print(help)) = command_line::parse(words, &|_| Ok(Vec::new())) else {
        panic!("no help")
    };
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for setting in TABLE.iter() {
        let Setting { flag, field, help: sentences, unit, .. } = setting;
        let flag =
            format!("--{flag}{}{unit}>", if setting.shape == ValueShape::Switch { "[=<" } else { " <" });
        assert!(help.contains(&flag), "{flag}: {help}");
        let facts = format!("{sentences} [default: {}] [field: {field}]", setting.shown_default());
        assert!(help.contains(&facts), "{facts}: {help}");
    }
    for choice in ["All controllers: deployment-controller", "PodDeletionCost=true|false", "explain"] {
        assert!(help.contains(choice), "{choice}: {help}");
    }
}

// parity: kube-controller-manager-configuration, kube-scheduler-config-most
#[test]
fn flag_overrides_field_and_field_overrides_default() {
    let defaults = settings(&[], "").to_json();
    assert_eq!(settings(&["--config=f"], FILE_HEADER).to_json(), defaults);
    for setting in TABLE.iter() {
        let Setting { flag, field, default, .. } = setting;
        let (text, value) = other_value(setting);
        let flag_line = format!("--{flag}={text}");
        let by_flag = settings(&[&flag_line], "").to_json();
        assert_eq!(field_of(&by_flag, field), &value, "--{flag}");
        let file = file_with(field, &value.to_string());
        assert_eq!(settings(&["--config=f"], &file).to_json(), by_flag, "{field} and --{flag} differ");
        let default_file = file_with(field, &field_of(&defaults, field).to_string());
        assert_eq!(settings(&["--config=f"], &default_file).to_json(), defaults, "default of {field}");
        assert_eq!(
            settings(&["--config=f", &flag_line], &default_file).to_json(),
            by_flag,
            "--{flag} does not override"
        );
        // A flag overrides feature gates one by one, and the default names none.
        if setting.shape != ValueShape::Map {
            let by_default = settings(&["--config=f", &format!("--{flag}={default}")], &file).to_json();
            assert_eq!(by_default, defaults, "--{flag} does not override");
        }
    }
}

// parity: write-config-to
#[test]
fn written_settings_are_read_back_unchanged() {
    let flags = TABLE.iter().map(|setting| format!("--{}={}", setting.flag, other_value(setting).0));
    let flags: Vec<_> = flags.collect();
    for line in [Vec::new(), flags.iter().map(String::as_str).collect()] {
        let written = settings(&line, "");
        let again = settings(&["--config=f"], &written.to_file());
        assert_eq!((again.to_json(), again.to_file()), (written.to_json(), written.to_file()));
        let json = settings(&["--config=f"], &written.to_json().to_string());
        assert_eq!(json.to_json(), written.to_json(), "JSON is a file too");
    }
    // JSON contains control characters that YAML must escape.
    let written = settings(&["--kubeconfig=/\u{7f}\u{feff}"], "");
    assert_eq!(settings(&["--config=f"], &written.to_file()).to_json(), written.to_json());
}

#[test]
fn written_file_explains_every_field() {
    let file = settings(&[], "").to_file();
    for setting in TABLE.iter() {
        let name = setting.field.rsplit('.').next().expect("a name");
        let help = format!("# {} [--{}]\n", setting.help, setting.flag);
        let (_, below) = file.split_once(&help).unwrap_or_else(|| panic!("{help}"));
        assert!(below.trim_start().starts_with(&format!("{name}: ")), "{name}");
    }
}

#[test]
fn flags_have_the_syntax_of_a_command_line() {
    let gates = "AllBeta=true,MaxUnavailableStatefulSet=false";
    let gates_flag = format!("--feature-gates={gates}");
    let flags = settings(&["--controllers=*,-endpoint", &gates_flag, "-v=3"], "").to_flags();
    assert_eq!(flags.len(), TABLE.len());
    for (flag, text) in [
        ("controllers", "*,-endpoint"),
        ("feature-gates", gates),
        ("v", "3"),
        ("leader-elect-lease-duration", "15s"),
        ("leader-elect", "true"),
        ("kubeconfig", ""),
    ] {
        assert_eq!(flags[flag], text, "{flag}");
    }
}

#[test]
fn configuration_file_of_the_documentation_is_valid() {
    let page = include_str!("../../../../docs/running.md");
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let files: Vec<_> = blocks.filter(|block| block.starts_with(FILE_HEADER)).collect();
    assert!(!files.is_empty(), "docs/running.md has no configuration file");
    files.iter().for_each(|file| drop(settings(&["--config=f"], file)));
}

// parity: named-flag-sets
#[test]
fn settings_page_matches_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let mut page =
        "# Settings\n\nEach setting is a flag and a field of the file that `--config` names. [Running \
        Windlass](running.md#settings) describes both.\n`--config`, `--write-config-to`, `--version` and `--help` are \
        flags only. `windlass --write-config-to=-` prints a complete\nfile with the defaults.\n\n\
        This page is generated: `WRITE_DOCS=1 cargo test -p windlass-controller-manager settings_page`.\n"
            .to_owned();
    let mut section = "";
    for setting in TABLE.iter() {
        if setting.section != section {
            section = setting.section;
            page += &format!("\n## {section}\n\n| flag | field | default | meaning |\n|---|---|---|---|\n");
        }
        let Setting { flag, unit, field, help, .. } = setting;
        let default = setting.shown_default();
        page += &format!("| `--{flag}` {unit} | `{field}` | `{default}` | {} |\n", help.replace('|', "\\|"));
    }
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &page).expect("docs/settings.md is writable");
    }
    assert!(
        std::fs::read_to_string(path).expect("docs/settings.md") == page,
        "run this test with WRITE_DOCS=1"
    );
}
