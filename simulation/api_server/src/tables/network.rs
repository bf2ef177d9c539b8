//! Rows of Services, endpoints and other network resources.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Layout;
use super::cells::{Row, first_three, or_none};

/// Returns the layout of a network resource.
pub(super) fn layout(group: &str, plural: &str) -> Option<Layout> {
    Some(match (group, plural) {
        ("", "services") => Layout("Name Type Cluster--IP External--IP Port(s) Age Selector?", service),
        ("", "endpoints") => Layout("Name Endpoints Age", endpoints),
        ("discovery.k8s.io", "endpointslices") => {
            Layout("Name AddressType Ports Endpoints Age", endpoint_slice)
        }
        ("networking.k8s.io", "ingresses") => Layout("Name Class Hosts Address Ports Age", ingress),
        ("networking.k8s.io", "ingressclasses") => Layout("Name Controller Parameters Age", ingress_class),
        ("networking.k8s.io", "networkpolicies") => Layout("Name Pod--Selector Age", |row| {
            vec![json!(row.name()), row.selector("/spec/podSelector"), row.age()]
        }),
        ("networking.k8s.io", "servicecidrs") => Layout("Name CIDRs Age", |row| {
            vec![json!(row.name()), json!(texts(row.list("/spec/cidrs")).join(",")), row.age()]
        }),
        ("networking.k8s.io", "ipaddresses") => Layout("Name ParentRef", ip_address),
        _ => return None,
    })
}

fn texts(list: &[Value]) -> Vec<String> {
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn service(row: Row<'_>) -> Vec<Value> {
    let ports: Vec<_> = row.list("/spec/ports").iter().map(service_port).collect();
    vec![
        json!(row.name()),
        json!(row.text("/spec/type")),
        json!(row.text_or("/spec/clusterIPs/0", "<none>")),
        json!(external_address(row)),
        json!(or_none(ports.join(","))),
        row.age(),
        row.labels("/spec/selector"),
    ]
}

fn service_port(port: &Value) -> String {
    let (number, protocol) = (&port["port"], port["protocol"].as_str().unwrap_or_default());
    match port["nodePort"].as_i64() {
        Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_address(row: Row<'_>) -> String {
    let external = texts(row.list("/spec/externalIPs"));
    match row.text("/spec/type") {
        "ClusterIP" | "NodePort" => or_none(external.join(",")),
        "LoadBalancer" => {
            let all: Vec<_> = load_balancer(row).into_iter().chain(external).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => row.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn load_balancer(row: Row<'_>) -> BTreeSet<String> {
    let one = |it: &Value| {
        let text = |field: &str| it[field].as_str().filter(|it| !it.is_empty());
        text("ip").or_else(|| text("hostname")).map(str::to_owned)
    };
    row.list("/status/loadBalancer/ingress").iter().filter_map(one).collect()
}

fn endpoints(row: Row<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in row.list("/subsets") {
        let addresses: Vec<_> = subset["addresses"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| it["ip"].as_str().unwrap_or_default())
            .collect();
        match subset["ports"].as_array().map_or(&[][..], Vec::as_slice) {
            [] => all.extend(addresses.into_iter().map(str::to_owned)),
            ports => {
                for port in ports {
                    all.extend(addresses.iter().map(|address| host_and_port(address, &port["port"])));
                }
            }
        }
    }
    let shown = if row.list("/subsets").is_empty() { "<none>".to_owned() } else { first_three(&all) };
    vec![json!(row.name()), json!(shown), row.age()]
}

fn host_and_port(address: &str, port: &Value) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

fn endpoint_slice(row: Row<'_>) -> Vec<Value> {
    let port = |it: &Value| match (it["port"].as_i64(), it["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    let ports: Vec<_> = row.list("/ports").iter().map(port).collect();
    let addresses: Vec<_> = row
        .list("/endpoints")
        .iter()
        .flat_map(|it| texts(it["addresses"].as_array().map_or(&[], Vec::as_slice)))
        .collect();
    let shown = |all: &[String]| match first_three(all) {
        nothing if nothing.is_empty() => "<unset>".to_owned(),
        some => some,
    };
    vec![
        json!(row.name()),
        json!(row.text("/addressType")),
        json!(shown(&ports)),
        json!(shown(&addresses)),
        row.age(),
    ]
}

fn ingress(row: Row<'_>) -> Vec<Value> {
    let rules = row.list("/spec/rules");
    let hosts: Vec<_> = rules
        .iter()
        .filter_map(|it| it["host"].as_str())
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect();
    let hosts = if hosts.is_empty() { "*".to_owned() } else { first_three(&hosts) };
    let addresses: Vec<_> = load_balancer(row).into_iter().collect();
    let ports = if row.list("/spec/tls").is_empty() { "80" } else { "80, 443" };
    vec![
        json!(row.name()),
        json!(row.text_or("/spec/ingressClassName", "<none>")),
        json!(hosts),
        json!(addresses.join(",")),
        json!(ports),
        row.age(),
    ]
}

fn ingress_class(row: Row<'_>) -> Vec<Value> {
    let default = "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class";
    let mark = if row.text(default) == "true" { " (default)" } else { "" };
    let parameters = match row.at("/spec/parameters") {
        None => "<none>".to_owned(),
        Some(it) => {
            let group = it["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
            let text = |field: &str| it[field].as_str().unwrap_or_default();
            format!("{}{group}/{}", text("kind"), text("name"))
        }
    };
    vec![
        json!(format!("{}{mark}", row.name())),
        json!(row.text("/spec/controller")),
        json!(parameters),
        row.age(),
    ]
}

fn ip_address(row: Row<'_>) -> Vec<Value> {
    let parent = row.at("/spec/parentRef").map_or_else(
        || "<none>".to_owned(),
        |it| {
            let text = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
            let of = match text("group") {
                group if group.is_empty() => text("resource"),
                group => format!("{}.{group}", text("resource")),
            };
            let parts = [of, text("namespace"), text("name")];
            parts.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("/")
        },
    );
    vec![json!(row.name()), json!(parent)]
}
