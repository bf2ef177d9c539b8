//! The errors about flags, fields and files.

use super::*;

/// Invalid values as flags, by flag or else by unit.
const INVALID: &[(&str, &[&str])] = &[
    (
        "controllers",
        &["", " ", ",", "*,foo", "endpont", "-replicaset", "-deployment", "*,\u{e9}", "*,-", "*,**"],
    ),
    (
        "authorization-always-allow-paths",
        &["healthz", "/healthz,livez", "/a b", "/*/a", "/\u{e9}", "/a?b", "*"],
    ),
    ("BOOL", &["", " ", "maybe", "2", "yes", "true ", "true,false", "tru\u{e9}", "\u{0}", "null"]),
    ("FILE", &[" ", "\t", "a\u{0}b"]),
    ("DIRECTORY", &[" ", "\t", "a\u{0}b"]),
    (
        "URL",
        &[" ", "nonsense", "host:6443", "ftp://host", "https://", "https:// host", "https://h\u{e9}st\n"],
    ),
    (
        "RATE",
        &[
            "", " ", "0", "-0", "fast", "NaN", "inf", "-inf", "1e999", "1,5", "20 ", "0x5", "1e-11",
            "0.0009", "1000001",
        ],
    ),
    (
        "REQUESTS",
        &["", " ", "0", "-3", "1.5", "five", "1000001", "4294967296", "\u{663}", "5 ", "1_000", "0x5", "+"],
    ),
    ("WORKERS", &["", "0", "-3", "10001", "99999999999999999999999999"]),
    ("THREADS", &["", "0", "1025"]),
    ("SHARDS", &["", "-3", "257"]),
    ("PODS", &["", " ", "1.5", "many", "2147483648", "-2147483649", "5 ", "1_000"]),
    ("LEVEL", &["", "-1", "11", "loud"]),
    ("PORT", &["", "-1", "65536", "http", "80.5"]),
    ("DURATION", &["", " ", "5", "-1h", "1d", "abc", "15 s", "9999999h", "1s,1s"]),
    ("NAME", &["", " ", "A", "a_b", "-a", "a-", ".", "a/b", "n\u{e4}me", "a b", "a\nb"]),
    ("NAMESPACES", &["Blue", "a.b", "a b", "blue,-green"]),
    ("KIND", &["", " ", "endpoints", "Leases", "leases "]),
    ("ADDRESS", &["", " ", "localhost", "127.0.0.1:80", "127.0.0.256", "[::1]", "::g", "127.0.0.1 "]),
    ("FORMAT", &["", " ", "xml", "JSON", "text,json", "text "]),
    (
        "GATES",
        &[
            "Foo",
            "Foo=true",
            "PodDeletionCost",
            "PodDeletionCost=maybe",
            "=true",
            "LogarithmicScaleDown=false",
            "PodDeletionCost=true,Foo=true",
        ],
    ),
];

fn invalid_values(setting: &Setting) -> &'static [&'static str] {
    let of = |key: &str| INVALID.iter().find(|(known, _)| *known == key).map(|(_, values)| *values);
    let values = of(&setting.flag).or_else(|| of(setting.unit));
    values.unwrap_or_else(|| panic!("--{}: add invalid values in {}", setting.flag, setting.unit))
}

/// Returns the text of a flag as a field.
fn as_field(setting: &Setting, text: &str) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let entry = |entry: &str| match entry.split_once('=') {
        Some((name, value)) => format!("{}: {}", quoted(name), quoted(value)),
        None => format!("{}: ", quoted(entry)),
    };
    match setting.shape {
        ValueShape::Switch | ValueShape::Scalar => quoted(text),
        ValueShape::List => format!("[{}]", text.split(',').map(quoted).collect::<Vec<_>>().join(", ")),
        ValueShape::Map => format!("{{{}}}", text.split(',').map(entry).collect::<Vec<_>>().join(", ")),
    }
}

/// Asserts that the input is rejected with one line that has the culprit and a remedy.
#[track_caller]
fn rejected(line: &[&str], file: &str, culprit: &str) -> String {
    let error = read(line, file).map(drop).expect_err(&format!("{line:?} {file}"));
    assert!(!error.chars().any(char::is_control) && error.len() < 800, "{error:?}");
    assert!(error.starts_with(culprit), "{line:?} {file}\nis       {error}\nexpected {culprit}");
    let remedies = ["write", "leave", "correct", "name", "did you mean", "begin", "list"];
    let (_, remedy) = error.split_once("; ").unwrap_or_else(|| panic!("no remedy: {error}"));
    assert!(remedies.iter().any(|word| remedy.contains(word)), "no remedy: {error}");
    error
}

// parity: validate-aggregate
#[test]
fn invalid_value_is_reported_with_flag_or_position() {
    for setting in TABLE.iter() {
        let Setting { flag, field, .. } = setting;
        for text in invalid_values(setting) {
            let word = format!("--{flag}={text}");
            let culprit =
                if text.chars().any(char::is_control) { format!("--{flag}=") } else { format!("{word}: ") };
            rejected(&[&word], "", &culprit);
            let file = file_with(field, &as_field(setting, text));
            let at = format!("f.yaml:{}:{}: {field}", file.lines().count(), column(&file));
            rejected(&["--config=f.yaml"], &file, &at);
            // A field is checked even if a flag overrides it.
            rejected(&["--config=f.yaml", &format!("--{flag}={}", other_value(setting).0)], &file, &at);
        }
    }
}

/// Returns the column of the value in the last line of a file with one field.
fn column(file: &str) -> usize {
    file.lines().last().and_then(|line| line.find(": ")).expect("a field") + 3
}

// parity: strict-decoding-unknown-repeated
#[test]
fn field_with_another_shape_is_reported_with_its_position() {
    for setting in TABLE.iter() {
        let others = [
            (&[ValueShape::List, ValueShape::Map][..], "text"),
            (&[ValueShape::Switch, ValueShape::Scalar, ValueShape::Map], "[a]"),
            (&[ValueShape::Switch, ValueShape::Scalar, ValueShape::List], "{a: true}"),
            (&[ValueShape::Switch, ValueShape::Scalar, ValueShape::List, ValueShape::Map], "[[]]"),
            (&[ValueShape::Switch, ValueShape::Scalar, ValueShape::List, ValueShape::Map], "{a: {}}"),
        ];
        for (_, value) in others.iter().filter(|(shapes, _)| shapes.contains(&setting.shape)) {
            let file = file_with(setting.field, value);
            let at = format!("f.yaml:{}:{}: {} is not ", file.lines().count(), column(&file), setting.field);
            rejected(&["--config=f.yaml"], &file, &at);
        }
    }
}

#[test]
fn password_in_a_url_is_never_printed() {
    let url = "https://me:secret@host";
    for setting in TABLE.iter().filter(|setting| !["FILE", "DIRECTORY"].contains(&setting.unit)) {
        let flag = format!("--{}={url}", setting.flag);
        let by_list = file_with(setting.field, &format!("[{{a: \"{url}\"}}]"));
        let by_text = file_with(setting.field, &format!("\"{url}\""));
        for (line, file) in [(flag.as_str(), ""), ("--config=f", &by_list), ("--config=f", &by_text)] {
            let error = read(&[line], file).map(drop).expect_err(line);
            let quotes_entries = matches!(setting.shape, ValueShape::List | ValueShape::Map);
            assert!(quotes_entries || !error.contains("secret"), "{error}");
        }
    }
}

// parity: strict-decoding-unknown-repeated
#[test]
fn unknown_or_repeated_field_is_reported_with_its_position() {
    for setting in TABLE.iter() {
        let misspelled = format!("{}x", setting.field);
        let file = file_with(&misspelled, "true");
        let error = rejected(&["--config=f.yaml"], &file, &format!("f.yaml:{}:", file.lines().count()));
        let suggestion = format!("unknown field {misspelled}; did you mean {}?", setting.field);
        assert!(error.ends_with(&suggestion), "{error}");
        let once = file_with(setting.field, "null");
        let last = once.lines().last().expect("a field");
        let column = last.len() - last.trim_start().len() + 1;
        let at = format!("f.yaml:{}:{column}: field ", once.lines().count() + 1);
        rejected(&["--config=f.yaml"], &format!("{once}{last}\n"), &at);
    }
}

// parity: strict-decoding-unknown-repeated, scheme-codecs
#[test]
fn file_that_cannot_be_used_is_reported_with_line_and_column() {
    for (content, expected) in [
        (
            "leaseDuration: 15s",
            "3:1: unknown field leaseDuration; did you mean generic.leaderElection.leaseDuration?",
        ),
        ("leaderElection: {a: 1}", "3:1: unknown field leaderElection; did you mean generic.leaderElection?"),
        ("genric: {}", "3:1: unknown field genric; did you mean generic?"),
        ("zzz: 1", "3:1: unknown field zzz; `windlass --help` lists all fields"),
        ("generic: 5", "3:10: generic is a section; write fields below it"),
        ("logging:\n  verbosity:", "4:12: logging.verbosity=\"\": invalid value; write a whole number"),
        (
            "logging:\n  verbosity: 11",
            "4:14: logging.verbosity=11: invalid value; write a whole number from 0 to 10",
        ),
        (
            "generic:\n  minResyncPeriod: 15",
            "4:20: generic.minResyncPeriod=15: invalid value; write a duration",
        ),
        (
            "generic:\n  <<: {controllers: ['*']}",
            "4:3: merge keys are not supported; write the fields themselves",
        ),
        ("generic: !mine {}", "3:16: "),
        ("generic: [", "3:10: unclosed bracket '['; correct the YAML"),
        ("\tgeneric: {}", "2:"),
        ("---\nkind: Other", ""),
        ("generic: *nobody", "3:10: "),
        ("logging:\n  format: text\n---\n", ""),
    ] {
        rejected(&["--config=f.yaml"], &format!("{FILE_HEADER}{content}\n"), &format!("f.yaml:{expected}"));
    }
    for (file, expected) in [
        ("", "1:1: not a mapping; begin with apiVersion and kind"),
        ("[]", "1:1: not a mapping"),
        (
            "kind: ControllerManagerConfiguration",
            "1:1: not a configuration of windlass; write apiVersion: config.windlass",
        ),
        (
            "apiVersion: config.windlass.dev/v1alpha1",
            "1:1: not a configuration of windlass; write kind: Controller",
        ),
        (
            "apiVersion: v1\nkind: ControllerManagerConfiguration",
            "1:13: not a configuration of windlass; write apiV",
        ),
        (
            "apiVersion: config.windlass.dev/v1alpha1\nkind: Pod",
            "2:7: not a configuration of windlass; write kind: ",
        ),
    ] {
        rejected(&["--config=f.yaml"], file, &format!("f.yaml:{expected}"));
    }
}

#[test]
fn file_with_wrong_encoding_or_length_is_reported() {
    let error =
        |bytes: &[u8]| SettingSources::default().add_file("f", bytes).expect_err("invalid").to_string();
    assert_eq!(error(b"\n\nlogging: \xff\n"), "f:3: not UTF-8; write the file in UTF-8");
    assert_eq!(error(&vec![b'#'; MAX_SIZE + 1]), "f: longer than 1 MiB; write settings only");
}

#[test]
fn short_file_cannot_exhaust_the_reader() {
    let mut bomb = format!("{FILE_HEADER}a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let last = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [last.as_str(); 10].join(", ")));
    }
    rejected(&["--config=f.yaml"], &bomb, "f.yaml");
    rejected(&["--config=f.yaml"], &format!("{FILE_HEADER}generic: {}\n", "[".repeat(100_000)), "f.yaml");
}

#[test]
fn file_accepts_json_empty_sections_and_anchors() {
    let yaml =
        format!("{FILE_HEADER}generic:\n  leaderElection: {{leaseDuration: 30s}}\n  controllers:\n  - '*'\n");
    let json = r#"{"apiVersion": "config.windlass.dev/v1alpha1", "kind": "ControllerManagerConfiguration",
        "generic": {"leaderElection": {"leaseDuration": "30s"}, "controllers": ["*"]}}"#;
    let [yaml, json] = [&yaml, json].map(|file| settings(&["--config=f"], file));
    assert_eq!(yaml.to_json(), json.to_json());
    assert_eq!(yaml.election.leader_elect_lease_duration.value.0.as_secs(), 30);
    let empty = format!("{FILE_HEADER}generic:\nlogging: {{}}\nendpointController:\n  # nothing\n");
    assert_eq!(settings(&["--config=f"], &empty).to_json(), settings(&[], "").to_json());
    let anchor = format!(
        "{FILE_HEADER}replicaSetController: {{concurrentRSSyncs: &many 9}}\n\
         replicationController: {{concurrentRCSyncs: *many}}\n"
    );
    assert_eq!(settings(&["--config=f"], &anchor).controllers.concurrent_rc_syncs.value.0, 9);
}

/// Invalid command lines, and the start of the error about each.
const COMMAND_LINES: &[(&[&str], &str)] = &[
    (&["--kube-api-qps=0"], "--kube-api-qps=0: invalid value; write a rate from 0.001 to 1000000"),
    (&["--kube-api-burst", "-1"], "--kube-api-burst=-1: invalid value; write a whole number from 1"),
    (
        &["--controllers=*,foo"],
        "--controllers=*,foo: \"foo\" is not a controller; write one of deployment-controller",
    ),
    (
        &["--controllers=endpont"],
        "--controllers=endpont: \"endpont\" is not a controller; did you mean endpoints-cont",
    ),
    (&["--controllers=-job"], "--controllers=-job: \"job\" is a kube-controller-manager contr"),
    (
        &["--controllers="],
        "--controllers=: no controller would run; write '*' for all of deployment-controller, ",
    ),
    (
        &["--min-resync-period=-1h"],
        "--min-resync-period=-1h: invalid value; write a duration with units, such as 15s",
    ),
    (&["--feature-gates=Foo=true"], "--feature-gates=Foo=true: unknown feature gate"),
    (
        &["--feature-gates=PodDeletionCosts=true"],
        "--feature-gates=PodDeletionCosts=true: unknown feature gate",
    ),
    (&["--feature-gates=LogarithmicScaleDown=false"], "--feature-gates=LogarithmicScaleDown=false: "),
    (
        &["--terminated-pod-gc-threshold=010"],
        "--terminated-pod-gc-threshold=010: invalid value; write a whole number",
    ),
    (&["--logging-format=xml"], "--logging-format=xml: invalid value; write text or json"),
    (&["-v=loud"], "--v=loud: "),
    (&["-v"], "--v: the value is missing; write --v=<value>"),
    (&["--kubeconfig"], "--kubeconfig: the value is missing; write --kubeconfig=<value>"),
    (&["--config="], "--config: the value is missing; "),
    (
        &["--node_monitor_period", "5s"],
        "--node-monitor-period: windlass does not implement this kube-controller-manager flag yet; leave it out",
    ),
    (
        &["--leader-elects=true"],
        "--leader-elects: unknown flag; did you mean --leader-elect? `windlass --help` lists",
    ),
    (&["--zzz\n=5"], "--zzz\\n: unknown flag; `windlass --help` lists"),
    (&["-q"], "-q: unknown flag; "),
    (&["ex\ntra"], "\"ex\\ntra\": neither a flag nor a command; write values as --flag=value; "),
    (&["--leader-elect", "false"], "\"false\": neither a flag nor a command; write values as --flag=value; "),
    (
        &["explian"],
        "\"explian\": neither a flag nor a command; write values as --flag=value; did you mean explain?",
    ),
    (&["help"], "\"help\": neither a flag nor a command; "),
    (
        &["-v=1", "explain", "replicaset", "a"],
        "explain: flags before a subcommand; write the subcommand first",
    ),
    (
        &["explain", "replicaset"],
        "<NAMESPACE/NAME>: missing; write `windlass explain <CONTROLLER> <NAMESPACE/NAME>`",
    ),
    (
        &["explain", "replicaset", "a/b/c"],
        "<NAMESPACE/NAME>=a/b/c: invalid value; \"a/b/c\" is not an object key; write `name` or ",
    ),
    (
        &["explain", "replicaset", "a", "--server=localhost:1"],
        "--server=localhost:1: invalid value; write https://host:port",
    ),
    (
        &["explain", "replicaset", "a", "--server=https://me:secret@host"],
        "--server=***: invalid value; write https",
    ),
    (&["explain", "replicaset", "a", "-o", "yaml"], "--output=yaml: invalid value; write text or json"),
    (&["explain", "replicaset", "a", "--token-file=a", "--kubeconfig=b"], "command line: "),
];

#[test]
fn invalid_command_line_is_reported_with_a_remedy() {
    for (line, error) in COMMAND_LINES {
        rejected(line, "", error);
    }
}

#[test]
fn argument_that_is_not_utf8_is_reported() {
    use std::os::unix::ffi::OsStringExt as _;
    let words = ["windlass".into(), OsString::from_vec(b"--kubeconfig=\xff".to_vec())];
    let error = command_line::parse(words, &|_| Ok(Vec::new())).expect_err("invalid").to_string();
    assert_eq!(error, "--kubeconfig=\u{fffd}: the argument is not UTF-8; write it in UTF-8");
}
