//! Wrong values of every setting, as a flag and in a file: each is told on one line that names the flag or the place in
//! the file, the value, and what to write instead.

use super::*;
use crate::settings::{Setting, Shape, TABLE, quoted, shown};

const HEAD: &str = "apiVersion: config.windlass.dev/v1alpha1\nkind: ControllerManagerConfiguration\n";

/// Values that no setting takes, as words of a command line, by the name of its flag or else by its unit.
const WRONG: &[(&str, &[&str])] = &[
    (
        "controllers",
        &[
            "",
            " ",
            ",",
            "*,foo",
            "endpont",
            "-replicaset",
            "-deployment",
            "*,\u{e9}",
            "*,-",
            "*,**",
            "rare controller",
        ],
    ),
    (
        "authorization-always-allow-paths",
        &[" ", "healthz", "/healthz,livez", "/a b", "/*/a", "/\u{e9}", "/a?b", "*", "/healthz, /livez"],
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
            "", " ", "0", "-0", "0.0", "fast", "NaN", "inf", "-inf", "1e999", "1,5", "20 ", "\u{662}", "0x5",
            "1e-20", "1e-11", "1e-9", "0.0009", "1000001", "1e300",
        ],
    ),
    (
        "REQUESTS",
        &[
            "",
            " ",
            "0",
            "-3",
            "1.5",
            "five",
            "1000001",
            "4294967295",
            "4294967296",
            "99999999999999999999999999",
            "\u{663}",
            "5 ",
            "1_000",
            "0x5",
            "+",
            "-",
        ],
    ),
    (
        "WORKERS",
        &[
            "",
            " ",
            "0",
            "-3",
            "1.5",
            "five",
            "4294967296",
            "99999999999999999999999999",
            "\u{663}",
            "5 ",
            "1_000",
            "0x5",
            "+",
            "-",
        ],
    ),
    (
        "SHARDS",
        &["", " ", "-3", "1.5", "five", "257", "4294967296", "\u{663}", "5 ", "1_000", "0x5", "+", "-"],
    ),
    ("LEVEL", &["", " ", "-1", "11", "loud", "1.5", "256", "4294967296", "\u{663}"]),
    ("PORT", &["", " ", "-1", "70000", "65536", "http", "80.5", "4294967296"]),
    (
        "DURATION",
        &[
            "",
            " ",
            "5",
            "-1h",
            "-0",
            "1d",
            "abc",
            "15 s",
            "s",
            "1.s.",
            "9999999h",
            "\u{ff11}s",
            "1s,1s",
            "1h-1m",
        ],
    ),
    (
        "min-resync-period",
        &["", " ", "5", "-1h", "1ns", "1ms", "999ms", "0.999999999s", "1d", "abc", "9999999h", "1h-1m"],
    ),
    ("NAME", &["", " ", "A", "a_b", "-a", "a-", ".", "a/b", "n\u{e4}me", "a b", "a\nb"]),
    ("KIND", &["", " ", "endpoints", "configmaps", "Leases", "leases "]),
    ("ADDRESS", &["", " ", "localhost", "127.0.0.1:80", "127.0.0.256", "[::1]", "::g", "127.0.0.1 "]),
    ("FORMAT", &["", " ", "xml", "JSON", "text,json", "text "]),
    (
        "GATES",
        &[
            "Foo",
            "Foo=true",
            "PodDeletionCost",
            "PodDeletionCost=",
            "PodDeletionCost=maybe",
            "=true",
            "LogarithmicScaleDown=false",
            "PodDeletionCost=true,Foo=true",
            "P\u{f6}dDeletionCost=true",
            "true",
        ],
    ),
    (
        "NAME=CONTROLLERS",
        &[
            "workloads",
            "workloads=",
            "=replicaset",
            "Work=replicaset",
            "a b=replicaset",
            "w=nobody",
            "w=replicaset,,nobody",
            "w\u{e9}=replicaset",
            "w=-replicaset",
            "w=*",
            "w=replicaset,replicaset",
        ],
    ),
];

/// Those of a setting. A unit that is not known here has none, so a new one cannot be forgotten.
fn wrong_words(setting: &Setting) -> &'static [&'static str] {
    let of = |key: &str| WRONG.iter().find(|(known, _)| *known == key).map(|(_, words)| *words);
    let words = of(setting.name).or_else(|| of(setting.unit));
    words.unwrap_or_else(|| panic!("--{}: what is no value in {}?", setting.name, setting.unit))
}

/// A file with one field.
fn file_of(field: &str, value: &str) -> String {
    let names: Vec<_> = field.split('.').collect();
    let mut file = HEAD.to_owned();
    for (depth, name) in names.iter().enumerate() {
        file.push_str(&format!(
            "{}{name}:{}",
            "  ".repeat(depth),
            if depth + 1 < names.len() { "\n" } else { " " }
        ));
    }
    file + value + "\n"
}

/// A word as the value of a field: a number as one, everything else as a text.
fn as_field(setting: &Setting, word: &str) -> String {
    let text = |word: &str| serde_json::Value::from(word).to_string();
    let texts = |words: &str| words.split(',').map(text).collect::<Vec<_>>().join(", ");
    let switch = |word: &str| match word.split_once('=') {
        Some((name, value)) => format!("{}: {value}", text(name)),
        None => format!("{}: ", text(word)),
    };
    match setting.shape {
        Shape::Number if word.parse::<f64>().is_ok_and(f64::is_finite) => word.to_owned(),
        Shape::Switch | Shape::Number | Shape::Text => text(word),
        Shape::List => format!("[{}]", texts(word)),
        Shape::Switches => format!("{{{}}}", word.split(',').map(switch).collect::<Vec<_>>().join(", ")),
    }
}

/// What every refusal is like.
#[track_caller]
fn is_one_line_with_a_remedy(what: &str, message: &str) {
    assert!(!message.chars().any(char::is_control), "{what:?}: {message:?}");
    assert!(message.len() < 800, "{what:?}: {message}");
    let remedies = ["write", "make", "leave", "correct", "name", "did you mean", "give", "list", "turn"];
    let said =
        message.split_once("; ").is_some_and(|(_, remedy)| remedies.iter().any(|word| remedy.contains(word)));
    assert!(said, "{what:?} is told without a remedy: {message}");
}

/// A field with its value, as it may stand in a message: in quotes or without.
fn told(field: &str, value: &str) -> Vec<String> {
    // An empty text is seen by its quotes only.
    let values = [quoted(value), shown(value)].into_iter().filter(|value| !value.is_empty());
    values.map(|value| format!("{field}={value}: ")).collect()
}

/// The same of a word that [`as_field`] wrote into a file: the whole of it, or that in it which is pointed at.
fn told_of(setting: &Setting, word: &str) -> Vec<String> {
    let field = setting.field;
    let below = |name: &str| format!("{field}.{}", shown(name));
    let entry = |entry: &str| match entry.split_once('=') {
        None | Some((_, "")) => vec![format!("{}: nothing ", below(entry.trim_end_matches('=')))],
        Some((name, values)) => {
            let values = values.split(',').flat_map(|value| [told(field, value), told(&below(name), value)]);
            [told(field, name), values.flatten().collect()].concat()
        }
    };
    match setting.shape {
        Shape::Switch | Shape::Number | Shape::Text => told(field, word),
        Shape::List => std::iter::once(word).chain(word.split(',')).flat_map(|it| told(field, it)).collect(),
        Shape::Switches => word.split(',').flat_map(entry).collect(),
    }
}

/// Every refusal of a value tells it, whole and as it was given, under its name, and then what is wrong with it.
#[track_caller]
fn names_the_value(what: &str, message: &str, told: &[String]) {
    let said = told.iter().any(|told| message.contains(told));
    assert!(said, "{what:?} is told without any of {told:?}: {message}");
}

#[test]
fn every_wrong_value_of_every_flag_is_told_with_flag_value_and_remedy() {
    for setting in TABLE {
        for word in wrong_words(setting) {
            let flag = format!("--{}={word}", setting.name);
            let message = read(&[&flag]).map(drop).expect_err(&flag);
            is_one_line_with_a_remedy(&flag, &message);
            let told = format!("--{}={}: ", setting.name, shown(word));
            assert!(message.starts_with(&told), "{flag:?}: {message}");
        }
    }
}

#[test]
fn every_wrong_value_of_every_field_is_told_with_place_field_value_and_remedy() {
    for setting in TABLE {
        for word in wrong_words(setting) {
            let file = file_of(setting.field, &as_field(setting, word));
            let message = read_with(&["--config=f.yaml"], &file).map(drop).expect_err(&file);
            is_one_line_with_a_remedy(&file, &message);
            let line = file.lines().count();
            assert!(message.starts_with(&format!("f.yaml:{line}:")), "{file}: {message}");
            names_the_value(&file, &message, &told_of(setting, word));
        }
    }
}

#[test]
fn every_value_of_another_type_is_told_with_place_field_value_and_remedy() {
    // Each with what of it is pointed at, below the field or in its list.
    let typed = [
        (Shape::Switch, "true", ""),
        (Shape::Number, "7", ""),
        (Shape::Text, "\"7\"", ""),
        (Shape::List, "[\"a\"]", ""),
        (Shape::Switches, "{a: true}", ".a=true"),
    ];
    let others = [
        ("null", ""),
        ("", ""),
        ("7.5e3", ""),
        ("[[]]", "=[]"),
        ("{a: {}}", ".a={}"),
        ("[1]", "=1"),
        ("\u{e9}", ""),
        ("!!binary aGk=", "=hi"),
    ];
    for setting in TABLE {
        let of_others = typed.iter().filter(|(shape, ..)| *shape != setting.shape);
        for (value, part) in of_others.map(|(_, value, part)| (*value, *part)).chain(others) {
            let legal = matches!(
                (setting.shape, value),
                (Shape::Text, "\u{e9}" | "!!binary aGk=") | (Shape::Number, "7.5e3") if setting.shape != Shape::Number || setting.unit == "RATE"
            );
            let file = file_of(setting.field, value);
            match read_with(&["--config=f.yaml"], &file) {
                Ok(_) => assert!(legal, "{file}"),
                Err(message) => {
                    is_one_line_with_a_remedy(&file, &message);
                    assert!(message.starts_with("f.yaml:"), "{file}: {message}");
                    let told = match (value, part.split_once('=')) {
                        ("", _) => vec![format!("{}: nothing ", setting.field)],
                        (_, None) => told(setting.field, value),
                        (_, Some((below, part))) => {
                            [told(setting.field, value), told(&format!("{}{below}", setting.field), part)]
                                .concat()
                        }
                    };
                    names_the_value(&file, &message, &told);
                }
            }
        }
    }
}

#[test]
fn an_address_with_a_password_is_quoted_nowhere_whatever_it_is_taken_for() {
    let address = "https://me:secret@host";
    // Lists of names are quoted as such: nobody looks for an address in them.
    let others = TABLE.iter().filter(|setting| setting.shape != Shape::List);
    for setting in others {
        for value in [format!("[\"{address}\"]"), format!("{{a: [{{b: \"{address}\"}}]}}")] {
            let file = file_of(setting.field, &value);
            let message = read_with(&["--config=f.yaml"], &file).map(drop).expect_err(&file);
            assert!(!message.contains("secret"), "{message}");
        }
    }
}

#[test]
fn every_field_twice_is_told_with_the_place_of_the_second() {
    for setting in TABLE {
        let once = file_of(setting.field, "null");
        let last = once.lines().last().expect("a field");
        let file = format!("{once}{last}\n");
        let message = read_with(&["--config=f.yaml"], &file).map(drop).expect_err(&file);
        is_one_line_with_a_remedy(&file, &message);
        let name = setting.field.rsplit('.').next().expect("a name");
        let (line, column) = (file.lines().count(), last.len() - last.trim_start().len() + 1);
        assert!(message.starts_with(&format!("f.yaml:{line}:{column}: ")), "{file}: {message}");
        assert!(message.contains(name), "{file}: {message}");
    }
}

#[test]
fn every_misspelt_field_is_told_with_the_field_that_was_meant() {
    for setting in TABLE {
        let misspelt = format!("{}x", setting.field);
        let file = file_of(&misspelt, "true");
        let message = read_with(&["--config=f.yaml"], &file).map(drop).expect_err(&file);
        is_one_line_with_a_remedy(&file, &message);
        let expected = format!("unknown field {misspelt}; did you mean {}?", setting.field);
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn a_wrong_field_is_told_even_where_a_flag_overrides_it() {
    let file = file_of("logging.verbosity", "11");
    let message = read_with(&["--config=f.yaml", "-v=1"], &file).map(drop).expect_err("11");
    assert!(message.starts_with("f.yaml:4:14: logging.verbosity=11: out of range"), "{message}");
}

/// Wrong lines, and what the one line about each must contain.
const REFUSALS: &[(&[&str], &[&str])] = &[
    (&["--kube-api-qps=fast"], &["not a number", "-1 for no limit"]),
    (&["--kube-api-qps=0"], &["ever be sent", "-1 for no limit"]),
    (&["--kube-api-qps=1e-11"], &["out of range", "from 0.001 to 1000000", "-1 for no limit"]),
    (&["--kube-api-burst=0"], &["out of range", "from 1 to 1000000"]),
    (&["--kube-api-burst=1.5"], &["whole number", "from 1 to 1000000"]),
    (&["--kube-api-burst", "-1"], &["--kube-api-burst=-1", "out of range"]),
    (
        &["--controllers=*,foo"],
        &["--controllers=*,foo", "\"foo\" is not", "there are replicaset-controller, endp"],
    ),
    (&["--controllers=endpont"], &["\"endpont\"", "endpoints-controller if you meant that"]),
    (&["--controllers=-replicaset"], &["no controller would run", "'*' for all"]),
    (&["--controllers=-deployment"], &["does not have yet", "leave it out"]),
    (&["--concurrent-replicaset-syncs=0"], &["from 1 to 10000"]),
    (&["--endpoint-updates-batch-period=5"], &["unit is missing", "15s"]),
    (&["--min-resync-period=-1h"], &["negative", "15s"]),
    (&["--min-resync-period=1ms"], &["looking through so often", "write 1s or more, or 0s"]),
    (&["--controller-start-interval=1d"], &["\"d\"", "1m30s"]),
    (&["--controller-shutdown-timeout="], &["empty", "15s"]),
    (&["--feature-gates=Foo=true"], &["unknown feature gate", "leave it out"]),
    (&["--feature-gates=PodDeletionCosts=true"], &["did you mean PodDeletionCost?", "write PodDeletionCost"]),
    (&["--feature-gates=LogarithmicScaleDown=false"], &["always true", "leave it out"]),
    (&["--leader-elect=maybe"], &["true or false"]),
    (&["--leader-elect-lease-duration=10500ms"], &["=10500ms: ", "whole number of seconds", "15s"]),
    (&["--leader-elect-lease-duration=0"], &["at least 1s", "15s"]),
    (&["--leader-elect-resource-lock=endpoints"], &["leases"]),
    (&["--bind-address=localhost"], &["not an IP address", "127.0.0.1"]),
    (&["--secure-port=70000"], &["out of range", "from 0 to 65535"]),
    (&["-v=loud"], &["--v=loud", "whole number", "from 0 to 10"]),
    (&["--logging-format=xml"], &["not a format", "text or json"]),
];

/// The same of lines that are wrong whatever their values are: no setting takes them, so nobody knows what is secret.
const MISUSES: &[(&[&str], &[&str])] = &[
    (&["-v"], &["-v needs a value", "-v=<value>"]),
    (&["--node-monitor-period=5s"], &["--node-monitor-period", "does not implement yet", "leave it out"]),
    (&["--node_monitor_period", "5s"], &["--node-monitor-period", "does not implement yet"]),
    (&["--leader-elects=true"], &["--leader-elects", "unknown flag", "--leader-elect?"]),
    (&["--zzz\n=5"], &["--zzz\\n", "unknown flag", "windlass --help"]),
    (&["-q"], &["-q", "unknown flag", "windlass --help"]),
    (&["--kubeconfig"], &["--kubeconfig", "needs a value", "--kubeconfig=<value>"]),
    (&["--config="], &["--config", "needs a value"]),
    (&["--write-config-to="], &["--write-config-to", "needs a value"]),
    (&["extra"], &["\"extra\"", "unexpected argument"]),
    (&["ex\ntra"], &["\"ex\\ntra\"", "unexpected argument"]),
    (&["--leader-elect", "false"], &["\"false\"", "unexpected argument", "equals sign"]),
];

#[test]
fn what_is_said_of_a_wrong_line_helps() {
    for (line, _) in REFUSALS {
        let message = read(line).map(drop).expect_err(&format!("{line:?} should be refused"));
        let told = format!("--{}: ", line.join("=").trim_start_matches('-'));
        assert!(message.starts_with(&told), "{line:?}: {message}");
    }
    for (line, parts) in REFUSALS.iter().chain(MISUSES) {
        let message = read(line).map(drop).expect_err(&format!("{line:?} should be refused"));
        is_one_line_with_a_remedy(&format!("{line:?}"), &message);
        for part in *parts {
            assert!(message.contains(part), "{line:?}: {part:?} is not in: {message}");
        }
    }
}

/// Settings that contradict each other: flags, a file, and what the one line about them must begin with and contain.
const CONTRADICTIONS: &[(&[&str], &str, &str, &[&str])] = &[
    (
        &["--leader-elect-renew-deadline=15s"],
        "",
        "--leader-elect-renew-deadline=15s: ",
        &["lease duration (15s)", "make it shorter, or --leader-elect-lease-duration longer"],
    ),
    (
        &["--leader-elect-lease-duration=10s"],
        "",
        "--leader-elect-lease-duration=10s: ",
        &["make it longer, or --leader-elect-renew-deadline shorter"],
    ),
    (
        &["--leader-elect-retry-period=9s"],
        "",
        "--leader-elect-retry-period=9s: ",
        &["retry period (9s)", "make it shorter, or --leader-elect-renew-deadline longer"],
    ),
    (
        &["--leader-elect-renew-deadline=1s", "--leader-elect-retry-period=200ms"],
        "",
        "--leader-elect-retry-period=200ms: ",
        &["2s longer than the retry period (200ms)", "--leader-elect-renew-deadline longer"],
    ),
    (
        &[],
        "{generic: {leaderElection: {renewDeadline: 20s}}}",
        "f.yaml:3:43: generic.leaderElection.renewDeadline=20s: ",
        &["make it shorter, or --leader-elect-lease-duration longer"],
    ),
    (
        &["--leader-elect-renew-deadline=40s"],
        "{generic: {leaderElection: {leaseDuration: 30s}}}",
        "--leader-elect-renew-deadline=40s: ",
        &["make it shorter, or generic.leaderElection.leaseDuration (line 3) longer"],
    ),
    (
        &[],
        "{generic: {leaderElection: {leaseDuration: 5s}}}",
        "f.yaml:3:43: generic.leaderElection.leaseDuration=5s: ",
        &["make it longer, or --leader-elect-renew-deadline shorter"],
    ),
    (
        &["--plain-http"],
        "",
        "--plain-http=true: plain HTTP stays on loopback, and --bind-address is 0.0.0.0; ",
        &["write --bind-address=127.0.0.1"],
    ),
    (
        &["--plain-http"],
        "{serving: {bindAddress: 10.0.0.1}}",
        "--plain-http=true: plain HTTP stays on loopback, and serving.bindAddress (line 3) is 10.0.0.1; ",
        &[],
    ),
    (
        &["--tls-cert-file=a"],
        "",
        "--tls-cert-file=a: a certificate without its key; give --tls-private-key-file too",
        &[],
    ),
    (
        &[],
        "{serving: {tlsPrivateKeyFile: /k}}",
        "f.yaml:3:30: serving.tlsPrivateKeyFile=/k: a key without its certificate; give --tls-cert-file too",
        &[],
    ),
    (
        &["--plain-http", "--bind-address=::1", "--tls-cert-file=c", "--tls-private-key-file=k"],
        "",
        "--tls-cert-file=c: --plain-http serves everybody, without TLS; ",
        &["leave one of them out"],
    ),
    (
        &["--plain-http", "--bind-address=::1", "--disable-http2-serving=false"],
        "",
        "--disable-http2-serving=false: --plain-http ",
        &[],
    ),
    (
        &["--plain-http", "--bind-address=::1"],
        "{authorization: {alwaysAllowPaths: [/x]}}",
        "f.yaml:3:35: authorization.alwaysAllowPaths=/x: --plain-http serves everybody",
        &[],
    ),
    (
        &["--plain-http", "--bind-address=::1", "--authorization-webhook-cache-authorized-ttl=1s"],
        "",
        "--authorization-webhook-cache-authorized-ttl=1s: --plain-http serves everybody",
        &[],
    ),
    (
        &["--leader-elect=false", "--shards=4"],
        "",
        "--shards=4: nobody is elected with --leader-elect=false; ",
        &["leave the shards out"],
    ),
    (
        &["--shards=4", "--leader-elect-coordinated"],
        "",
        "--shards=4: --leader-elect-coordinated has the API server choose one leader; ",
        &["leave one of them out"],
    ),
    (
        &["--shards=4", "--feature-gates=CoordinatedLeaderElection=true"],
        "",
        "--shards=4: the feature gate CoordinatedLeaderElection has the API server choose one leader; ",
        &["switch the gate off"],
    ),
    (
        &["--leader-elect=false", "--leader-elect-coordinated"],
        "",
        "--leader-elect-coordinated=true: nobody is elected with --leader-elect=false; ",
        &[],
    ),
    (
        &["--leader-elect=false", "--feature-gates=CoordinatedLeaderElection=true"],
        "",
        "--feature-gates=CoordinatedLeaderElection=true: CoordinatedLeaderElection: nobody is elected with \
         --leader-elect=false; ",
        &["leave one of them out"],
    ),
    (
        &["--leader-elect=false", "--feature-gates=PodDeletionCost=false"],
        "{featureGates: {CoordinatedLeaderElection: true}}",
        "f.yaml:3:16: featureGates=CoordinatedLeaderElection: CoordinatedLeaderElection: nobody is elected with ",
        &["leave one of them out"],
    ),
    (
        &["--leader-elect-coordinated=false"],
        "{featureGates: {CoordinatedLeaderElection: true}}",
        "--leader-elect-coordinated=false: featureGates (line 3) switches the feature gate CoordinatedLeaderElection on",
        &["leave one of them out"],
    ),
    (
        &["--leader-elect-coordinated=false", "--feature-gates=AllBeta=true"],
        "",
        "--leader-elect-coordinated=false: --feature-gates switches the feature gate CoordinatedLeaderElection on",
        &[],
    ),
    (
        &["--feature-gates=PodDeletionCost=true"],
        "{featureGates: {NoSuchThing: true}}",
        "f.yaml:3:16: featureGates=NoSuchThing: unknown feature gate",
        &["leave it out"],
    ),
    (
        &["--feature-gates=LogarithmicScaleDown=true"],
        "{featureGates: {LogarithmicScaleDown: false}}",
        "f.yaml:3:16: featureGates=LogarithmicScaleDown: ",
        &["always true"],
    ),
    (
        &["--feature-gates=NoSuchThing=true"],
        "{featureGates: {PodDeletionCost: true}}",
        "--feature-gates=NoSuchThing=true: unknown feature gate",
        &[],
    ),
    (
        &["--controllers=*"],
        "{generic: {controllers: [replicaset, nobody]}}",
        "f.yaml:3:37: generic.controllers=nobody: \"nobody\" is not a controller",
        &["there are replicaset-controller"],
    ),
    (
        &["--secure-port=0", "--plain-http"],
        "",
        "--plain-http=true: nothing is served with --secure-port=0; ",
        &["leave one of them out"],
    ),
];

/// Whether the beginning of a message has a name of a line or of fields, and a value of theirs, whole.
fn names_one_of(line: &[&str], fields: &str, beginning: &str) -> bool {
    let Some((name, value)) = beginning.split_once('=') else { return false };
    let Some((value, _)) = value.split_once(": ") else { return false };
    let Some(field) = name.strip_prefix("f.yaml:") else {
        // A flag of lists may be given several times, and a switch stands for `true`.
        let given: Vec<_> = line.iter().filter_map(|word| word.strip_prefix(name)).collect();
        let values: Vec<_> = given.iter().map(|value| value.strip_prefix('=').unwrap_or("true")).collect();
        return values.join(",") == value;
    };
    let field = field.rsplit(' ').next().unwrap_or_default();
    let words =
        |text: &str| text.split(|c: char| " {}[]:,".contains(c)).map(str::to_owned).collect::<Vec<_>>();
    field.split('.').all(|name| words(fields).iter().any(|word| word == name))
        && words(fields).iter().any(|word| word == value)
}

#[test]
fn what_contradicts_is_told_by_the_names_under_which_it_was_given() {
    let mut others = String::new();
    for (line, fields, beginning, parts) in CONTRADICTIONS {
        assert!(names_one_of(line, fields, beginning), "{line:?} {fields}: no value in {beginning}");
        let file =
            format!("{HEAD}{}\n", fields.trim_start_matches('{').strip_suffix('}').unwrap_or_default());
        let line: Vec<_> = line.iter().copied().chain(["--config=f.yaml"]).collect();
        let message = read_with(&line, &file).map(drop).expect_err(&file);
        is_one_line_with_a_remedy(&file, &message);
        if !message.starts_with(beginning) || !parts.iter().all(|part| message.contains(part)) {
            others.push_str(&format!("{line:?} {fields}: {message}\n"));
        }
    }
    assert!(others.is_empty(), "{others}");
}

#[test]
fn a_value_that_is_no_text_is_told_by_the_name_of_its_flag() {
    use std::os::unix::ffi::OsStringExt as _;
    let word = OsString::from_vec(b"--kubeconfig=\xff".to_vec());
    let Err(Stop::Refused(error)) = args::parse(["windlass".into(), word], &KNOWN, &|_| Ok(Vec::new()))
    else {
        panic!("no text");
    };
    assert_eq!(error.to_string(), "--kubeconfig: the value is not UTF-8; write it in UTF-8");
}
