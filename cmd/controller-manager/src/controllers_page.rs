//! The page `docs/controllers.md`, generated from the registrations, their declarations and the table of settings.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use windlass::controller::{Declaration, Descriptor, KeySharding};
use windlass::env::Env;
use windlass::informer::Selection;
use windlass::object::{ResourceKind, Rule, Verb};
use windlass_controllers::ControllerOptions;

use crate::settings::TABLE;

const PAGE: &str = "/../../docs/controllers.md";
const SOURCES: &str = "/../../controllers/src";

/// The setting whose field has the name of another controller, as upstream.
const ROOT_CA: (&str, &str) = ("saController", "root-ca-cert-publisher");

const HEAD: &str = "# Controllers

This page is for operators. It lists the built-in controllers with their names, caches, permissions and flags.
`--controllers` takes the name or the alias of a controller, and `*` enables all that are on by default.
[Differences from kube-controller-manager](differences-from-kube-controller-manager.md#behavior-of-the-controllers)
describes their behavior, and [Events and conditions](events.md) their messages.

- *Requests* are the verbs that the role of a controller contains for each resource. A controller cannot send another
  request.
- With `--use-service-account-credentials` a controller uses the ServiceAccount of this name in `kube-system`.
- The label `name` of the metrics `workqueue_*` is the name of the queue.

This page is generated: `WRITE_DOCS=1 cargo test -p windlass-controller-manager controllers_page`.
";

#[tokio::test]
async fn controllers_page_matches_the_registrations() {
    let path = format!("{}{PAGE}", env!("CARGO_MANIFEST_DIR"));
    let page = page();
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("docs/controllers.md is writable");
    }
    let committed = std::fs::read_to_string(&path).expect("docs/controllers.md");
    assert!(committed == page, "docs/controllers.md is out of date: run this test with WRITE_DOCS=1");
}

fn page() -> String {
    let env = Env::system("docs");
    let registrations = |limited_to_namespaces: bool| {
        windlass_controllers::registrations(&ControllerOptions {
            limited_to_namespaces,
            ..ControllerOptions::default()
        })
    };
    let in_namespaces: BTreeSet<&str> = registrations(true)
        .iter()
        .map(|it| it.descriptor())
        .filter(|it| it.enabled_by_default)
        .map(|it| it.name)
        .collect();
    let mut page = HEAD.to_owned();
    let mut listed = 0;
    for registration in registrations(false) {
        let declaration = registration.declaration(&env).expect("a declaration");
        let flags = flags(&declaration.descriptor);
        listed += flags.len();
        let is_on = in_namespaces.contains(declaration.descriptor.name);
        page += &section(&declaration, &flags, is_on);
    }
    let of_controllers = TABLE.iter().filter(|it| section_of(it.field).is_some()).count();
    assert_eq!(listed, of_controllers, "each setting of a controller is listed once");
    page
}

fn section(declaration: &Declaration, flags: &[String], is_on_in_namespaces: bool) -> String {
    let Declaration { descriptor, rules, watches, .. } = declaration;
    let spans = |names: &[&str]| match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let caches: BTreeSet<String> = watches.iter().map(|(kind, selection)| cache(kind, selection)).collect();
    let shards = match descriptor.sharding {
        KeySharding::ByKey => "divided by the namespace of the key, or by its name without a namespace",
        KeySharding::OneShard => "all keys in one shard; every replica has complete caches",
    };
    let default = match is_on_in_namespaces {
        true => "on",
        false => "on; with `--watch-namespaces` only if `--controllers` names it",
    };
    let mut section =
        format!("\n## {}\n\n{}\n\n| | |\n|---|---|\n", descriptor.name, purpose(descriptor.name));
    let mut row = |name: &str, text: String| {
        let _ = writeln!(section, "| {name} | {text} |");
    };
    row("alias", spans(descriptor.aliases));
    row("default", default.to_owned());
    row("flags", spans(&flags.iter().map(String::as_str).collect::<Vec<_>>()));
    row("caches", caches.into_iter().collect::<Vec<_>>().join("; "));
    row("requests", rules.iter().map(request).collect::<Vec<_>>().join("; "));
    row("runs on", format!("{:?}", descriptor.runs_on).to_lowercase());
    row("shards", shards.to_owned());
    row("ServiceAccount", spans(&[descriptor.client_name]));
    row("source of Events", descriptor.event_source().map_or("none".to_owned(), |name| spans(&[name])));
    row("queue", spans(&[descriptor.queue_name]));
    section
}

/// Returns the first sentences of the documentation of a controller.
fn purpose(name: &str) -> String {
    let folder = format!("{}{SOURCES}", env!("CARGO_MANIFEST_DIR"));
    let constant = format!("const NAME: &'static str = \"{name}\";");
    let files = std::fs::read_dir(Path::new(&folder)).expect("the sources of the controllers");
    let paths = files.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
    let mut sources = paths.map(|path| std::fs::read_to_string(path).expect("a source file"));
    let source = sources.find(|source| source.contains(&constant)).expect("the source of the controller");
    let lines = source.lines().map_while(|line| line.strip_prefix("//! "));
    let text = lines.collect::<Vec<_>>().join(" ");
    assert!(!text.contains("[`"), "{name}: the first sentences contain a link of rustdoc");
    text
}

fn cache(kind: &ResourceKind, selection: &Selection) -> String {
    let all = Selection::default();
    let is_limited = selection.labels != all.labels || selection.fields != all.fields;
    match is_limited {
        true => format!("{} ({})", kind.plural, selection),
        false => kind.plural.to_string(),
    }
}

fn request(rule: &Rule) -> String {
    let group = if rule.group.is_empty() { String::new() } else { format!(".{}", rule.group) };
    let (resource, subresource) = match rule.resource.split_once('/') {
        Some((resource, name)) => (resource, format!("/{name}")),
        None => (&*rule.resource, String::new()),
    };
    let verbs: Vec<_> = rule.verbs.iter().map(|verb: &Verb| verb.as_str()).collect();
    format!("`{resource}{group}{subresource}`: {}", verbs.join(", "))
}

/// Returns the flags whose fields belong to a controller.
fn flags(descriptor: &Descriptor) -> Vec<String> {
    let belongs = |section: &str| {
        let lower = section.to_lowercase();
        descriptor.aliases.iter().any(|alias| {
            (section, *alias) == ROOT_CA || lower == *alias || lower == format!("{alias}controller")
        })
    };
    let own = TABLE.iter().filter(|it| section_of(it.field).is_some_and(belongs));
    own.map(|it| format!("--{}", it.flag)).collect()
}

/// Returns the section of the file if it configures a controller.
fn section_of(field: &str) -> Option<&str> {
    field.split_once('.').map(|(section, _)| section).filter(|section| section.ends_with("Controller"))
}
