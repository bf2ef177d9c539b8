//! The table of settings, and what is made of it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::args::{self, Stop};

mod files;

/// The settings of a command line, and of the file it names, if it names one.
fn read(line: &[&str], file: &str) -> Result<Settings, String> {
    let words = std::iter::once("windlass").chain(line.iter().copied()).map(OsString::from);
    match args::parse(words, &[], &|_: &Path| Ok(file.as_bytes().to_vec())) {
        Ok(args) => Ok(args.settings),
        Err(Stop::Refused(refusal)) => Err(refusal.to_string()),
        Err(Stop::Print(text) | Stop::Write { text, .. }) => Err(text),
    }
}

fn settings(line: &[&str], file: &str) -> Settings {
    read(line, file).unwrap_or_else(|message| panic!("{line:?} with {file}: {message}"))
}

/// A file that says one thing.
fn file_of(field: &str, value: &str) -> String {
    let mut file = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
    let mut indent = String::new();
    let names: Vec<_> = field.split('.').collect();
    for name in &names[..names.len() - 1] {
        file.push_str(&format!("{indent}{name}:\n"));
        indent.push_str("  ");
    }
    file + &format!("{indent}{}: {value}\n", names[names.len() - 1])
}

/// A value of each setting that is not its default, as a flag and as a field. A unit that is not known here has none, so
/// a new one cannot be forgotten.
fn another(setting: &Setting) -> (&'static str, Value) {
    match (setting.name, setting.unit) {
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
        (_, "REQUESTS" | "WORKERS" | "SHARDS") => ("7", json!(7)),
        (_, "LEVEL") => ("9", json!(9)),
        (_, "PORT") => ("0", json!(0)),
        (_, "DURATION") => ("1m30s", json!("1m30s")),
        (_, "NAME") => ("another.name-1", json!("another.name-1")),
        (_, "ADDRESS") => ("::1", json!("::1")),
        (_, "FORMAT") => ("json", json!("json")),
        (_, "GATES") => ("A=true,B=false", json!({"A": true, "B": false})),
        (_, "NAME=CONTROLLERS") => ("one=a,b", json!({"one": ["a", "b"]})),
        (name, unit) => panic!("--{name}: what is another value in {unit}?"),
    }
}

/// Every setting with another value, as a command line.
fn all_other_flags() -> Vec<String> {
    TABLE.iter().map(|setting| format!("--{}={}", setting.name, another(setting).0)).collect()
}

fn at_path<'a>(value: &'a Value, field: &str) -> &'a Value {
    field.split('.').fold(value, |value, name| &value[name])
}

#[test]
fn flags_and_fields_have_one_setting_each() {
    let flags: BTreeSet<_> = TABLE.iter().map(|setting| setting.name).collect();
    let fields: BTreeSet<_> = TABLE.iter().map(|setting| setting.field).collect();
    assert_eq!((flags.len(), fields.len()), (TABLE.len(), TABLE.len()));
    for field in &fields {
        let below = format!("{field}.");
        assert!(!fields.iter().any(|other| other.starts_with(&below)), "{field} is a section and a setting");
    }
}

#[test]
fn every_setting_has_its_flag_field_default_and_unit_in_the_help() {
    let help = args::help(&[]).split_whitespace().collect::<Vec<_>>().join(" ");
    for setting in TABLE {
        let flag = format!("--{} ", setting.name)
            .replace(' ', if setting.shape == Shape::Switch { "[=<" } else { " <" });
        let shown = format!("{flag}{}>", setting.unit);
        assert!(help.contains(&shown), "{shown}\n{help}");
        assert!(help.contains(&setting.sentence()), "{}", setting.sentence());
        let facts = format!("[default: {}] [field: {}]", setting.shown_default(), setting.field);
        assert!(help.contains(&facts), "{facts}\n{help}");
        if setting.unit == "DURATION" {
            assert!(setting.default.ends_with(['s', 'm', 'h']), "--{}: a default has a unit", setting.name);
        }
    }
}

#[test]
fn every_flag_of_the_command_line_is_a_setting_or_is_about_the_command_line() {
    let own = ["config", "write-config-to", "version", "help"];
    for flag in args::flag_names() {
        let is_setting = TABLE.iter().any(|setting| setting.name == flag);
        assert!(is_setting != own.contains(&flag.as_str()), "--{flag} has no field");
    }
}

#[test]
fn every_setting_can_be_given_as_a_flag_and_as_a_field_with_one_meaning() {
    for setting in TABLE {
        let (word, value) = another(setting);
        let by_flag = settings(&[&format!("--{}={word}", setting.name)], "").to_json();
        let by_field = settings(&["--config=f"], &file_of(setting.field, &value.to_string())).to_json();
        assert_eq!(at_path(&by_flag, setting.field), &value, "--{}", setting.name);
        assert_eq!(by_flag, by_field, "{}", setting.field);
    }
}

#[test]
fn defaults_are_the_same_however_they_are_given() {
    let none = settings(&[], "").to_json();
    let empty_file = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
    assert_eq!(settings(&["--config=f"], &empty_file).to_json(), none);
    for setting in TABLE {
        let by_flag = settings(&[&format!("--{}={}", setting.name, setting.default)], "").to_json();
        assert_eq!(by_flag, none, "--{}", setting.name);
        let default = at_path(&none, setting.field).to_string();
        let by_field = settings(&["--config=f"], &file_of(setting.field, &default)).to_json();
        assert_eq!(by_field, none, "{}", setting.field);
    }
}

#[test]
fn a_flag_wins_over_the_field_and_the_field_over_the_default() {
    for setting in TABLE.iter().filter(|setting| setting.name != "leader-elect-resource-lock") {
        let (word, value) = another(setting);
        let file = file_of(setting.field, &value.to_string());
        let none = settings(&[], "").to_json();
        assert_ne!(at_path(&none, setting.field), &value, "{}: no other value", setting.field);
        // A flag wins gate by gate, and one that names none leaves them to the file.
        let default = if setting.unit == "GATES" { "A=false,B=true" } else { setting.default };
        let flag = format!("--{}={default}", setting.name);
        let none = settings(&[&flag], "").to_json();
        let both = settings(&["--config=f", &flag], &file).to_json();
        assert_eq!(both, none, "--{} does not win", setting.name);
        let default = file_of(setting.field, &at_path(&none, setting.field).to_string());
        let both = settings(&[&format!("--{}={word}", setting.name), "--config=f"], &default).to_json();
        assert_eq!(at_path(&both, setting.field), &value, "--{} does not win", setting.name);
    }
}

#[test]
fn what_is_written_is_accepted_and_changes_nothing() {
    let others = all_other_flags();
    let others: Vec<_> = others.iter().map(String::as_str).collect();
    for line in [&[][..], &others] {
        let written = settings(line, "");
        let again = settings(&["--config=f"], &written.to_file());
        assert_eq!(again.to_json(), written.to_json(), "{}", written.to_file());
        assert_eq!(again.to_file(), written.to_file());
        let as_json = settings(&["--config=f"], &written.to_json().to_string());
        assert_eq!(as_json.to_json(), written.to_json(), "JSON is a file too");
    }
}

#[test]
fn the_written_file_has_every_field_below_its_help() {
    let file = settings(&[], "").to_file();
    for setting in TABLE {
        let name = setting.field.rsplit('.').next().expect("a name");
        let help = format!("# {} [--{}]\n", setting.sentence(), setting.name);
        let (_, below) = file.split_once(&help).unwrap_or_else(|| panic!("{help}"));
        assert!(below.trim_start().starts_with(&format!("{name}: ")), "{name}");
    }
}

#[test]
fn flags_are_shown_as_they_would_be_written() {
    let flags = settings(&["--controllers=*,-endpoint", "--feature-gates=A=true", "-v=3"], "").to_flags();
    assert_eq!(flags.len(), TABLE.len());
    for (name, value) in [
        ("controllers", "*,-endpoint"),
        ("feature-gates", "A=true"),
        ("v", "3"),
        ("leader-elect-lease-duration", "15s"),
        ("leader-elect", "true"),
        ("kubeconfig", ""),
    ] {
        assert_eq!(flags[name], value, "{name}");
    }
}

#[test]
fn the_page_on_running_has_the_table_of_settings() {
    const PAGE: &str = include_str!("../../../../docs/running.md");
    let mut table = "| flag | field | default |\n|---|---|---|\n".to_owned();
    for setting in TABLE {
        let Setting { name, unit, field, .. } = setting;
        table.push_str(&format!("| `--{name}` {unit} | `{field}` | `{}` |\n", setting.shown_default()));
    }
    assert!(PAGE.contains(&table), "docs/running.md should have this table:\n{table}");
}
