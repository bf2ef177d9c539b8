//! What is read from a file, and what is said of one that cannot be used.

use super::*;

const HEAD: &str = "apiVersion: config.windlass.dev/v1alpha1\nkind: ControllerManagerConfiguration\n";

fn from_file(file: &str) -> Settings {
    settings(&["--config=windlass.yaml"], file)
}

#[track_caller]
fn refused(file: &str) -> String {
    let message = read(&["--config=windlass.yaml"], file).map(drop).expect_err(file);
    assert!(!message.chars().any(char::is_control), "{message}");
    message
}

#[test]
fn yaml_and_json_say_the_same() {
    let yaml = format!("{HEAD}generic:\n  leaderElection: {{leaseDuration: 30s}}\n  controllers:\n  - '*'\n");
    let json = r#"{"apiVersion": "config.windlass.dev/v1alpha1", "kind": "ControllerManagerConfiguration",
        "generic": {"leaderElection": {"leaseDuration": "30s"}, "controllers": ["*"]}}"#;
    let (yaml, json) = (from_file(&yaml), from_file(json));
    assert_eq!(yaml.to_json(), json.to_json());
    assert_eq!(yaml.election.leader_elect_lease_duration.value.0.as_secs(), 30);
}

#[test]
fn a_section_may_be_empty_and_values_may_be_named_once_and_used_twice() {
    let file = format!("{HEAD}generic:\nlogging: {{}}\nendpointController:\n  # nothing\n");
    assert_eq!(from_file(&file).to_json(), settings(&[], "").to_json());
    let file = format!(
        "{HEAD}replicaSetController: {{concurrentRSSyncs: &many 9}}\n\
         replicationController: {{concurrentRCSyncs: *many}}\n"
    );
    assert_eq!(from_file(&file).controllers.concurrent_rc_syncs.value.0, 9);
}

/// Files that cannot be used: what follows the head, and what the one line about it says.
const REFUSALS: &[(&str, &str)] = &[
    (
        "generic:\n  leaderElection:\n    leaseDuratoin: 15s\n",
        "windlass.yaml:5:5: unknown field generic.leaderElection.leaseDuratoin; did you mean \
         generic.leaderElection.leaseDuration?",
    ),
    (
        "leaseDuration: 15s\n",
        "windlass.yaml:3:1: unknown field leaseDuration; did you mean generic.leaderElection.leaseDuration?",
    ),
    (
        "leaderElection: { leaseDuration: 15s }\n",
        "windlass.yaml:3:1: unknown field leaderElection; did you mean generic.leaderElection?",
    ),
    ("genric: {}\n", "windlass.yaml:3:1: unknown field genric; did you mean generic?"),
    ("zzz: 1\n", "windlass.yaml:3:1: unknown field zzz; `windlass --help` names every field"),
    ("generic: 5\n", "windlass.yaml:3:10: generic=5 is no section; write fields below it"),
    (
        "generic:\n  leaderElection:\n    leaseDuration: 15\n",
        "windlass.yaml:5:20: generic.leaderElection.leaseDuration=15: a number where a text should be; write a text in \
         quotes; a duration has a unit, as 15s",
    ),
    (
        "generic:\n  leaderElection:\n    leaseDuration: 15\n    leaseDuration: 15s\n",
        "windlass.yaml:6:5: field leaseDuration is given twice; leave one of them out",
    ),
    (
        "generic:\n  leaderElection:\n    leaseDuration: 1d\n",
        "windlass.yaml:5:20: generic.leaderElection.leaseDuration=1d: not a duration, \"d\" is not a unit",
    ),
    (
        "generic:\n  leaderElection: {leaderElect: yes}\n",
        "windlass.yaml:4:33: generic.leaderElection.leaderElect=\"yes\": a text where true or false should be; write true \
         or false without quotes",
    ),
    (
        "logging:\n  verbosity: \"3\"\n",
        "windlass.yaml:4:14: logging.verbosity=\"3\": a text where a number should be; write a number without quotes",
    ),
    (
        "logging:\n  verbosity:\n",
        "windlass.yaml:4:12: logging.verbosity: nothing where a number should be; write a number, or leave the field out",
    ),
    (
        "logging:\n  verbosity: 11\n",
        "windlass.yaml:4:14: logging.verbosity=11: out of range; write a number from 0 to 10",
    ),
    ("logging:\n  verbosity: 1.5\n", "windlass.yaml:4:14: logging.verbosity=1.5: not a whole number"),
    ("logging:\n  verbosity: 1e400\n", "windlass.yaml:4:14: logging.verbosity=1e400: not a whole number"),
    ("logging:\n  verbosity: .inf\n", "windlass.yaml:4:14: logging.verbosity=.inf: not a whole number"),
    (
        "generic:\n  clientConnection:\n    qps: .nan\n",
        "windlass.yaml:5:10: generic.clientConnection.qps=.nan: not a number",
    ),
    (
        "generic:\n  controllers: '*'\n",
        "windlass.yaml:4:16: generic.controllers=\"*\": a text where a list of texts should be",
    ),
    (
        "generic:\n  controllers: ['*', 5]\n",
        "windlass.yaml:4:22: generic.controllers=5: a number where a text for each entry should be",
    ),
    (
        "generic:\n  controllers: ['*', ' ']\n",
        "windlass.yaml:4:22: generic.controllers=\" \": an entry is empty; leave it out",
    ),
    (
        "featureGates: {A: maybe}\n",
        "windlass.yaml:3:19: featureGates.A=\"maybe\": a text where true or false should be",
    ),
    (
        "featureGates: [A]\n",
        "windlass.yaml:3:15: featureGates=[\"A\"]: a list where true or false for each name should be",
    ),
    (
        "generic:\n  <<: {controllers: ['*']}\n",
        "windlass.yaml:4:3: merge keys are not read; write the fields themselves",
    ),
    ("generic: !mine {}\n", "windlass.yaml:3:16: "),
    ("generic: [\n", "windlass.yaml:3:10: unclosed bracket '['; correct the YAML"),
    ("\tgeneric: {}\n", "windlass.yaml:2:"),
    ("---\nkind: Other\n", "windlass.yaml:"),
    ("generic: *nobody\n", "windlass.yaml:3:10: "),
];

#[test]
fn what_is_wrong_in_a_file_is_told_with_line_column_field_and_remedy() {
    let mut others = String::new();
    for (rest, expected) in REFUSALS {
        let message = refused(&format!("{HEAD}{rest}"));
        if !message.starts_with(expected) || !message.contains("; ") {
            others.push_str(&format!("{rest}\nis told as     {message}\nand should be  {expected}\n\n"));
        }
    }
    assert!(others.is_empty(), "{others}");
}

#[test]
fn a_file_of_another_kind_or_version_is_refused() {
    for (file, expected) in [
        ("", "windlass.yaml:1:1: nothing where the configuration should be; begin with apiVersion: "),
        ("# nothing\n", "windlass.yaml:1:1: nothing where"),
        ("[]", "windlass.yaml:1:1: a list where the configuration should be"),
        (
            "kind: ControllerManagerConfiguration\n",
            "windlass.yaml:1:1: apiVersion is missing; write apiVersion: config.windlass.dev/v1alpha1",
        ),
        ("apiVersion: config.windlass.dev/v1alpha1\n", "windlass.yaml:1:1: kind is missing; write kind: "),
        (
            "apiVersion: v1\nkind: ControllerManagerConfiguration\n",
            "windlass.yaml:1:13: apiVersion=\"v1\": not this program's configuration; write apiVersion: config",
        ),
        (
            "apiVersion: config.windlass.dev/v1alpha1\nkind: Pod\n",
            "windlass.yaml:2:7: kind=\"Pod\": not this program's configuration; write kind: ",
        ),
        ("apiVersion: 5\nkind: Pod\n", "windlass.yaml:1:13: apiVersion=5: not"),
    ] {
        let message = refused(file);
        assert!(
            message.starts_with(expected),
            "{file:?}\nis told as     {message}\nand should be  {expected}"
        );
    }
}

#[test]
fn what_is_no_text_or_too_long_is_refused_where_it_begins() {
    let bytes = [HEAD.as_bytes(), b"logging:\n  format: \xff\n"].concat();
    let error = read_file("f", &bytes).expect_err("no UTF-8").to_string();
    assert_eq!(error, "f:4:11: not UTF-8; write the file in UTF-8");
    let long = vec![b'#'; LONGEST + 1];
    let error = read_file("f", &long).expect_err("too long").to_string();
    assert_eq!(error, "f: longer than a mebibyte; write settings only");
}

#[test]
fn few_lines_cannot_keep_the_reader_busy() {
    let mut bomb = format!("{HEAD}a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let last = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [last.as_str(); 10].join(", ")));
    }
    assert!(refused(&bomb).starts_with("windlass.yaml"));
    let deep = format!("{HEAD}generic: {}\n", "[".repeat(100_000));
    assert!(refused(&deep).starts_with("windlass.yaml"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let words = ["windlass", "--config=gone.yaml"].map(OsString::from);
    let gone = |_: &Path| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    let Err(Stop::Refused(refusal)) = args::parse(words, &[], &gone) else { panic!("it is gone") };
    let message = refusal.to_string();
    assert!(
        message.starts_with("--config=gone.yaml: cannot be read: ")
            && message.ends_with("; name a readable file")
    );
}
