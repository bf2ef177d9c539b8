//! Parsing of the command line. Pure: nothing is opened.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt as _};
use windlass_admin::Tls;
use windlass_manager::{ManifestPart, closest};
use windlass_object::names::{is_dns_label, is_dns_subdomain};

use crate::error::Error;
use crate::log::LogFormat;

/// The parsed command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Runs controllers.
    Run(Run),
    /// Prints the manifests.
    Manifests(Manifests),
    /// Prints this text.
    Help(String),
}

/// Options of the run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) leader_elect: bool,
    pub(crate) lease_namespace: Option<String>,
    pub(crate) watch_namespaces: Vec<String>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) tls: TlsFiles,
    pub(crate) install_crds: bool,
    pub(crate) webhooks: Webhooks,
    pub(crate) log_format: LogFormat,
}

/// The files of the certificate of the admin server: both or neither.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// Options of the webhook server. Absent ones have the defaults of the library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Webhooks {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) url: Option<String>,
    pub(crate) configuration: Option<String>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
}

/// Options of the manifests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifests {
    pub(crate) part: ManifestPart,
    pub(crate) namespace: Option<String>,
    pub(crate) per_controller: bool,
    /// The options with which the program will run.
    pub(crate) run: Run,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            leader_elect: true,
            lease_namespace: None,
            watch_namespaces: Vec::new(),
            address: None,
            tls: TlsFiles::default(),
            install_crds: false,
            webhooks: Webhooks::default(),
            log_format: LogFormat::Text,
        }
    }
}

impl Command {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// Returns the first invalid argument.
    pub(crate) fn parse(name: &str, words: Vec<OsString>) -> Result<Self, Error> {
        let is_manifests = words.first().is_some_and(|word| word == "manifests");
        let parsed = match is_manifests {
            true => manifests(name, Parser::from_args(words.into_iter().skip(1))),
            false => run(name, Parser::from_args(words)),
        };
        parsed.map_err(|error| Error::Argument(error.to_string()))
    }
}

fn run(name: &str, mut parser: Parser) -> Result<Command, lexopt::Error> {
    let mut run = Run::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("kubeconfig") => run.kubeconfig = Some(parser.value()?.into()),
            Arg::Long("log-format") => run.log_format = log_format(&parser.value()?.string()?)?,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help(name))),
            Arg::Long(flag) => {
                let flag = flag.to_owned();
                run.set(&flag, &RUN_FLAGS, &mut parser)?;
            }
            Arg::Value(word) => return Err(unexpected_word(&word.to_string_lossy()).into()),
            other @ Arg::Short(_) => return Err(other.unexpected()),
        }
    }
    run.check()?;
    Ok(Command::Run(run))
}

fn manifests(name: &str, mut parser: Parser) -> Result<Command, lexopt::Error> {
    let mut parsed = Manifests::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Value(word) => parsed.part = word.string()?.parse()?,
            Arg::Long("namespace") => {
                parsed.namespace = Some(namespace("--namespace", &parser.value()?.string()?)?);
            }
            Arg::Long("per-controller") => {
                parsed.per_controller = switch("per-controller", &mut parser)?;
            }
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(help(name))),
            Arg::Long(flag) => {
                let flag = flag.to_owned();
                parsed.run.set(&flag, &MANIFEST_FLAGS, &mut parser)?;
            }
            other @ Arg::Short(_) => return Err(other.unexpected()),
        }
    }
    parsed.run.check()?;
    Ok(Command::Manifests(parsed))
}

/// The flags of a run that `manifests` does not have.
const RUN_FLAGS: [&str; 2] = ["kubeconfig", "log-format"];

/// The flags of `manifests` that a run does not have.
const MANIFEST_FLAGS: [&str; 2] = ["namespace", "per-controller"];

/// The flags of both commands.
const SHARED_FLAGS: [&str; 14] = [
    "leader-elect",
    "lease-namespace",
    "watch-namespaces",
    "address",
    "tls-cert-file",
    "tls-private-key-file",
    "install-crds",
    "webhook-address",
    "webhook-url",
    "webhook-configuration",
    "webhook-cert-file",
    "webhook-key-file",
    "webhook-client-ca-file",
    "help",
];

impl Run {
    /// Sets the option of a flag that both commands have. The error for another flag suggests one of these and
    /// `others`.
    fn set(&mut self, flag: &str, others: &[&'static str], parser: &mut Parser) -> Result<(), lexopt::Error> {
        match flag {
            "leader-elect" => self.leader_elect = switch("leader-elect", parser)?,
            "lease-namespace" => {
                self.lease_namespace = Some(namespace("--lease-namespace", &parser.value()?.string()?)?);
            }
            // An alias, shown by the help.
            "watch-namespaces" | "namespaces" => {
                self.watch_namespaces.extend(namespaces(&parser.value()?.string()?)?);
            }
            "address" => self.address = Some(address("--address", &parser.value()?.string()?)?),
            "tls-cert-file" => self.tls.certificate = file(&parser.value()?),
            "tls-private-key-file" => self.tls.key = file(&parser.value()?),
            "install-crds" => self.install_crds = switch("install-crds", parser)?,
            flag => match self.webhooks.set(flag, parser)? {
                true => {}
                false => return Err(unknown_flag(flag, others).into()),
            },
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let Self { tls, webhooks, watch_namespaces: names, .. } = self;
        if let Some((_, name)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name))
        {
            let list = names.join(",");
            return Err(format!("{NAMESPACES}={list}: {name:?} is listed twice; remove one entry"));
        }
        for (certificate, key, flags) in [
            (&tls.certificate, &tls.key, "--tls-cert-file and --tls-private-key-file"),
            (&webhooks.certificate, &webhooks.key, "--webhook-cert-file and --webhook-key-file"),
        ] {
            if certificate.is_some() != key.is_some() {
                return Err(format!("{flags} belong together: set both or neither"));
            }
        }
        Ok(())
    }
}

fn unknown_flag(flag: &str, others: &[&'static str]) -> String {
    let known = || SHARED_FLAGS.iter().chain(others).copied();
    let near = closest(flag, known());
    let longer = known().filter(|it| it.contains(flag) && near != Some(it));
    let similar: Vec<String> = near.into_iter().chain(longer).map(|it| format!("--{it}")).collect();
    match similar.is_empty() {
        true => format!("unknown flag --{flag}"),
        false => format!("unknown flag --{flag} (did you mean {}?)", similar.join(" or ")),
    }
}

fn unexpected_word(word: &str) -> String {
    match closest(word, ["manifests"]) {
        Some(command) => format!("unknown command {word:?} (did you mean {command}?)"),
        None => format!("unknown command {word:?}; the only command is manifests"),
    }
}

impl TlsFiles {
    /// Returns the setting of the admin server, if both files are given.
    pub(crate) fn setting(&self) -> Option<Tls> {
        let Self { certificate, key } = self;
        Some(Tls::Files { certificate: certificate.clone()?, key: key.clone()? })
    }
}

impl Webhooks {
    /// Sets the option of a flag. Returns whether webhooks have this flag.
    fn set(&mut self, flag: &str, parser: &mut Parser) -> Result<bool, lexopt::Error> {
        match flag {
            "webhook-address" => {
                self.address = Some(address("--webhook-address", &parser.value()?.string()?)?);
            }
            "webhook-url" => self.url = Some(url(&parser.value()?.string()?)?),
            "webhook-configuration" => {
                self.configuration = Some(object("--webhook-configuration", &parser.value()?.string()?)?);
            }
            "webhook-cert-file" => self.certificate = file(&parser.value()?),
            "webhook-client-ca-file" => self.client_ca = file(&parser.value()?),
            "webhook-key-file" => self.key = file(&parser.value()?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Checks a base URL of webhooks, for which the API server requires HTTPS.
fn url(value: &str) -> Result<String, String> {
    let host = value.strip_prefix("https://").filter(|rest| !rest.is_empty() && !rest.contains('/'));
    match host {
        Some(_) => Ok(value.to_owned()),
        None => Err(format!(
            "--webhook-url={value}: use https:// and a host without a path, such as https://10.0.0.7:9443"
        )),
    }
}

/// Returns a path. As in kube-controller-manager, an empty text is no file.
fn file(value: &OsStr) -> Option<PathBuf> {
    (!value.is_empty()).then(|| value.into())
}

/// Parses a flag that is `true` without a value.
fn switch(flag: &str, parser: &mut Parser) -> Result<bool, lexopt::Error> {
    let Some(value) = parser.optional_value() else { return Ok(true) };
    match value.string()?.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("--{flag}={other}: use `true` or `false`").into()),
    }
}

fn address(flag: &str, value: &str) -> Result<SocketAddr, String> {
    value.parse().map_err(|_| {
        format!("{flag}={value}: use an address and a port, such as 127.0.0.1:8080 or [::]:8443")
    })
}

fn log_format(value: &str) -> Result<LogFormat, String> {
    match value {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("--log-format={other}: use `text` or `json`")),
    }
}

/// The flag of namespaces in errors. Its values are joined.
const NAMESPACES: &str = "--watch-namespaces";

fn namespaces(value: &str) -> Result<Vec<String>, String> {
    let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names = names.map(|name| namespace(NAMESPACES, name)).collect::<Result<Vec<_>, _>>()?;
    match names.is_empty() {
        // An empty variable of a script must not widen the scope of the program.
        true => Err(format!("{NAMESPACES}={value}: the list is empty; omit the flag for all namespaces")),
        false => Ok(names),
    }
}

/// Validates a label name of RFC 1123, as the API server does.
fn namespace(flag: &str, name: &str) -> Result<String, String> {
    match is_dns_label(name) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "{flag}={name}: invalid namespace name; use at most 63 lowercase letters, digits and `-`"
        )),
    }
}

/// Validates a subdomain name of RFC 1123: labels with dots between them.
fn object(flag: &str, name: &str) -> Result<String, String> {
    match is_dns_subdomain(name) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "{flag}={name}: invalid object name; use at most 253 lowercase letters, digits, `-` and `.`"
        )),
    }
}

fn help(name: &str) -> String {
    format!(
        "\
Usage: {name} [arguments]
       {name} manifests [all|crd|rbac|webhook] [--namespace=NAME] [--watch-namespaces=A,B] [--per-controller]

Runs the controllers of {name} until SIGTERM or SIGINT.

  --kubeconfig=FILE         kubeconfig; default $KUBECONFIG, the ServiceAccount of the Pod, or ~/.kube/config
  --leader-elect=BOOL       elect a leader among the replicas; default true
  --lease-namespace=NAME    namespace of the Lease {name}; default that of the Pod, or of the kubeconfig's context
  --watch-namespaces=A,B, --namespaces=A,B
                            namespaces whose objects are cached and reconciled; default all
  --address=IP:PORT         address of probes, metrics and debugging endpoints: plain HTTP on loopback, TLS with
                            delegated access elsewhere; default [::]:8443 in a Pod (set 0.0.0.0:8443 on a node
                            without IPv6), disabled outside
  --tls-cert-file=FILE, --tls-private-key-file=FILE
                            certificate and key of --address in PEM, reloaded when they change; the server then uses
                            TLS with delegated access on loopback too; default a self-signed certificate in memory
  --install-crds=BOOL       apply the CRDs of this program's kinds first; default false
  --webhook-address=IP:PORT address of webhooks, if the program has webhooks; default [::]:9443 (set 0.0.0.0:9443 on a
                            node without IPv6)
  --webhook-url=URL         base URL of this process for the API server, instead of a Service, such as
                            https://10.0.0.7:9443
  --webhook-configuration=NAME
                            name of the webhook configurations; default {name}
  --webhook-cert-file=FILE, --webhook-key-file=FILE
                            certificate and key of webhooks; by default the replicas issue and rotate certificates
  --webhook-client-ca-file=FILE
                            authorities of client certificates, which API servers then need to call webhooks
  --log-format=FORMAT       text or json; default text. RUST_LOG sets the log filter
  -h, --help                print this text

manifests prints the CRDs, ServiceAccount, roles, bindings and webhook configurations of the program. It needs no
cluster.

  --namespace=NAME          namespace of the program and of its ServiceAccount; default default
  --per-controller=BOOL     one role for each controller; default false
  --watch-namespaces=A,B, --leader-elect=BOOL, --lease-namespace=NAME, --address=IP:PORT,
  --tls-cert-file=FILE, --tls-private-key-file=FILE, --install-crds=BOOL
  --webhook-address=IP:PORT, --webhook-url=URL, --webhook-configuration=NAME, --webhook-cert-file=FILE,
  --webhook-key-file=FILE, --webhook-client-ca-file=FILE
                            same values as for the run; roles contain the rules for the election, delegated access
                            and CRDs. With watched namespaces the roles are Roles in these namespaces. The Lease is
                            in the namespace of the program by default
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Command, String> {
        let words = words.split_whitespace().map(OsString::from).collect();
        Command::parse("sites", words).map_err(|error| error.to_string())
    }

    #[test]
    fn help_names_every_flag_of_each_command() {
        let help = help("sites");
        let (run, manifests) = help.split_once("manifests prints").expect("two parts");
        for (part, own) in [(run, RUN_FLAGS), (manifests, MANIFEST_FLAGS)] {
            for flag in SHARED_FLAGS.iter().filter(|flag| **flag != "help").chain(&own) {
                assert!(part.contains(&format!("--{flag}=")), "--{flag} is missing: {part}");
            }
        }
    }

    #[test]
    fn arguments_are_accepted_in_any_order_and_form() {
        assert_eq!(parse(""), Ok(Command::Run(Run::default())));
        let words = "--log-format json --watch-namespaces=blue,green --kubeconfig /k --leader-elect=false \
                     --address=[::]:9 --install-crds --lease-namespace ops";
        let run = Run {
            kubeconfig: Some("/k".into()),
            leader_elect: false,
            lease_namespace: Some("ops".into()),
            watch_namespaces: vec!["blue".into(), "green".into()],
            address: Some("[::]:9".parse().expect("an address")),
            tls: TlsFiles::default(),
            install_crds: true,
            webhooks: Webhooks::default(),
            log_format: LogFormat::Json,
        };
        assert_eq!(parse(words), Ok(Command::Run(run)));
    }

    #[test]
    fn webhook_flags_are_parsed_and_checked() {
        let words = "--webhook-address=127.0.0.1:9 --webhook-url https://127.0.0.1:9 --webhook-cert-file /c \
                     --webhook-key-file=/k --webhook-client-ca-file=/ca --webhook-configuration=blue.sites";
        let webhooks = Webhooks {
            address: Some("127.0.0.1:9".parse().expect("an address")),
            url: Some("https://127.0.0.1:9".to_owned()),
            configuration: Some("blue.sites".to_owned()),
            certificate: Some("/c".into()),
            key: Some("/k".into()),
            client_ca: Some("/ca".into()),
        };
        assert_eq!(parse(words), Ok(Command::Run(Run { webhooks, ..Run::default() })));
        for wrong in [
            "--webhook-cert-file=/c",
            "manifests --webhook-key-file=/c",
            "--webhook-url=http://127.0.0.1:9",
            "--webhook-url=https://127.0.0.1:9/path",
            "--webhook-address=9443",
            "--webhook-configuration=",
            "--webhook-configuration=a..b",
            "manifests --webhook-configuration=Sites",
            "--webhook-secret=x",
            "--webhook-cert-file= --webhook-key-file=/k",
        ] {
            assert!(parse(wrong).is_err_and(|error| error.contains("--webhook-")), "{wrong}");
        }
        let empty = "--webhook-cert-file= --webhook-key-file= --webhook-client-ca-file=";
        assert_eq!(parse(empty), Ok(Command::Run(Run::default())), "an empty text is no file");
    }

    #[test]
    fn repeated_lists_of_namespaces_are_joined() {
        for words in [
            "--watch-namespaces=blue --namespaces=green",
            "--watch-namespaces=blue --watch-namespaces=green",
            "--namespaces blue --namespaces green",
        ] {
            let run = Run { watch_namespaces: vec!["blue".into(), "green".into()], ..Run::default() };
            assert_eq!(parse(words), Ok(Command::Run(run)), "{words}");
        }
        let words = "manifests --watch-namespaces=blue --namespaces=green";
        let Ok(Command::Manifests(manifests)) = parse(words) else { panic!("{words}") };
        assert_eq!(manifests.run.watch_namespaces, ["blue", "green"]);
    }

    #[test]
    fn certificate_and_key_are_accepted_only_together() {
        let words = "--tls-cert-file=/c --tls-private-key-file /k";
        let files = || TlsFiles { certificate: Some("/c".into()), key: Some("/k".into()) };
        assert_eq!(parse(words), Ok(Command::Run(Run { tls: files(), ..Run::default() })));
        let run = Run { tls: files(), ..Run::default() };
        let manifests = Manifests { run, ..Manifests::default() };
        assert_eq!(parse(&format!("manifests {words}")), Ok(Command::Manifests(manifests)));
        assert_eq!(parse("--tls-cert-file= --tls-private-key-file="), Ok(Command::Run(Run::default())));
        for half in
            ["--tls-cert-file=/c", "--tls-private-key-file=/k", "--tls-cert-file= --tls-private-key-file=/k"]
        {
            for words in [half.to_owned(), format!("manifests {half}")] {
                let error = parse(&words).expect_err("half of a pair");
                let expected =
                    "--tls-cert-file and --tls-private-key-file belong together: set both or neither";
                assert!(error.starts_with(expected), "{error}");
            }
        }
    }

    #[test]
    fn manifests_take_a_part_and_namespaces() {
        assert_eq!(parse("manifests"), Ok(Command::Manifests(Manifests::default())));
        let rbac = Manifests {
            part: ManifestPart::Rbac,
            namespace: Some("ops".into()),
            per_controller: true,
            run: Run {
                watch_namespaces: vec!["blue".into(), "green".into()],
                leader_elect: false,
                lease_namespace: Some("leases".into()),
                address: Some("127.0.0.1:9".parse().expect("an address")),
                install_crds: true,
                ..Run::default()
            },
        };
        let words = "manifests rbac --lease-namespace=leases --namespace=ops --namespaces blue,green --install-crds \
                     --leader-elect=false --address=127.0.0.1:9 --per-controller";
        assert_eq!(parse(words), Ok(Command::Manifests(rbac)));
    }

    #[test]
    fn error_names_the_argument_and_the_remedy() {
        for (words, parts) in [
            ("--leader-elect=maybe", ["--leader-elect=maybe", "`true`"]),
            ("--address=8443", ["--address=8443", "127.0.0.1:8080"]),
            ("--log-format=xml", ["--log-format=xml", "`json`"]),
            ("--watch-namespaces=Blue", ["--watch-namespaces=Blue", "lowercase"]),
            ("--watch-namespaces=,", ["--watch-namespaces=,", "omit the flag"]),
            (
                "--watch-namespaces=a,b,a",
                ["--watch-namespaces=a,b,a: \"a\" is listed twice", "remove one entry"],
            ),
            (
                "--watch-namespaces=a,b --namespaces=a",
                ["--watch-namespaces=a,b,a: \"a\" is listed twice", "remove one entry"],
            ),
            ("--watch-namespaces=a --namespaces=", ["--watch-namespaces=", "omit the flag"]),
            ("manifests --watch-namespaces=", ["--watch-namespaces=", "omit the flag"]),
            ("--lease-namespace=-a", ["--lease-namespace=-a", "lowercase"]),
            ("--kubeconfig", ["--kubeconfig", "missing argument"]),
            ("--qps=3", ["unknown flag --qps;", "--help"]),
            ("--kubecfg=/k", ["unknown flag --kubecfg", "did you mean --kubeconfig?"]),
            ("--namespace=a", ["did you mean --lease-namespace or --watch-namespaces?", "--help"]),
            ("--webhook-secret=x", ["unknown flag --webhook-secret", "--help"]),
            ("manifests --kubeconfig=/k", ["unknown flag --kubeconfig", "--help"]),
            ("manifests --namespacs=a", ["unknown flag --namespacs", "did you mean --namespace"]),
            ("-k", ["-k", "--help"]),
            ("run", ["unknown command \"run\"", "manifests"]),
            ("manifest rbac", ["unknown command \"manifest\"", "did you mean manifests?"]),
            ("manifests roles", ["unknown part \"roles\"", "rbac"]),
        ] {
            let error = parse(words).expect_err(words);
            assert!(parts.iter().all(|part| error.contains(part)), "{words}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn help_lists_every_argument() {
        let Ok(Command::Help(help)) = parse("--help") else { panic!("no help") };
        for flag in RUN_FLAGS.iter().chain(&MANIFEST_FLAGS).chain(&SHARED_FLAGS) {
            assert!(help.contains(&format!("--{flag}")), "{flag}");
        }
        assert!(help.lines().all(|line| line.len() <= 120));
    }
}
