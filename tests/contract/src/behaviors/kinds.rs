//! Validation of Ingresses, classes, LimitRanges and ResourceQuotas.

use serde_json::{Value, json};

use super::objects::service;
use crate::{Behavior, Case, Outcome, TestResponse, behaviors, case::patch::MERGE, has, same};

pub(super) const ALL: &[Behavior] = behaviors![
    invalid_ingress_is_rejected,
    invalid_backend_of_ingress_is_rejected,
    invalid_status_of_ingress_is_rejected,
    ingress_class_is_either_a_field_or_an_annotation,
    invalid_storage_class_is_rejected,
    storage_class_is_immutable,
    volume_attributes_class_is_immutable,
    invalid_priority_class_is_rejected,
    priority_class_is_immutable,
    invalid_limit_range_is_rejected,
    contradictory_limits_are_rejected,
    limit_range_has_defaults,
    invalid_resource_quota_is_rejected,
    invalid_scope_of_resource_quota_is_rejected,
    update_of_resource_quota_is_validated,
    internal_traffic_policy_of_external_name_is_dropped,
    cluster_address_is_immutable,
    requested_addresses_and_ports_are_checked,
    empty_attributes_class_of_claim_is_a_change,
    protocols_of_a_port_share_its_port_on_nodes,
    windows_user_is_validated,
];

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Compares the causes of a rejection; `@` stands for the rule of subdomains.
fn expect(answer: &TestResponse, causes: &[&str]) -> Outcome {
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    let found = answer.body["details"]["causes"].as_array().into_iter().flatten();
    let found: Vec<_> = found.map(|it| format!("{}: {}", text(it, "field"), text(it, "message"))).collect();
    let causes: Vec<_> = causes.iter().map(|it| it.replace('@', SUBDOMAIN)).collect();
    same!((answer.status, found), (422, causes));
    Ok(())
}

fn ingress(spec: Value) -> Value {
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "a" }, "spec": spec })
}

const INGRESSES: &str = "networking.k8s.io/v1 ingresses";

/// Returns an Ingress with one path.
fn with_path(host: &str, kind: &str, path: &str, backend: Value) -> Value {
    let path = json!({ "pathType": kind, "path": path, "backend": backend });
    ingress(json!({ "rules": [{ "host": host, "http": { "paths": [path] } }] }))
}

fn web() -> Value {
    json!({ "service": { "name": "web", "port": { "number": 80 } } })
}

async fn invalid_ingress_is_rejected(case: Case) -> Outcome {
    let path = "spec.rules[0].http.paths[0]";
    let absent = ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"];
    expect(&case.post(INGRESSES, ingress(json!({}))).await?, &absent)?;
    let answer = case.post(INGRESSES, with_path("1.2.3.4", "Prefix", "a", web())).await?;
    let expected = [
        "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
        &format!("{path}.path: Invalid value: \"a\": must be an absolute path"),
    ];
    expect(&answer, &expected)?;
    let answer = case.post(INGRESSES, with_path("*.Foo", "Exact", "/a//b%2f/..", web())).await?;
    let given = format!("{path}.path: Invalid value: \"/a//b%2f/..\":");
    let expected = [
        "spec.rules[0].host: Invalid value: \"*.Foo\": a wildcard DNS-1123 subdomain must start with '*.', followed by \
         a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an \
         alphanumeric character (e.g. '*.example.com', regex used for validation is \
         '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        &format!("{given} must not contain '//'"),
        &format!("{given} must not contain '%2f'"),
        &format!("{given} cannot end with '/..'"),
    ];
    expect(&answer, &expected)?;
    let answer = case.post(INGRESSES, with_path("*.example.com", "Odd", "/", web())).await?;
    let known = "supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\"";
    expect(&answer, &[&format!("{path}.pathType: Unsupported value: \"Odd\": {known}")])?;
    let answer = case.post(INGRESSES, ingress(json!({ "rules": [{ "http": { "paths": [] } }] }))).await?;
    expect(&answer, &["spec.rules[0].http.paths: Required value"])?;
    case.make(INGRESSES, with_path("*.example.com", "Prefix", "/", web())).await?;
    let removed = json!({ "spec": { "rules": null } });
    expect(&case.patch(MERGE, "networking.k8s.io/v1 ingresses/a", removed).await?, &absent)
}

async fn invalid_backend_of_ingress_is_rejected(case: Case) -> Outcome {
    let service = |name: &str, port: Value| json!({ "service": { "name": name, "port": port } });
    let cases = [
        (json!({}), vec![": Invalid value: \"\": resource or service backend is required"]),
        (
            json!({ "resource": { "kind": "a", "name": "b" }, "service": { "name": "a" } }),
            vec![": Invalid value: \"\": cannot set both resource and service backends"],
        ),
        (
            json!({ "resource": { "kind": "", "name": "a/b", "apiGroup": "B_" } }),
            vec![
                ".resource.apiGroup: Invalid value: \"B_\": @",
                ".resource.kind: Required value",
                ".resource.name: Invalid value: \"a/b\": may not contain '/'",
            ],
        ),
        (
            service("a.b", json!({ "number": 70000 })),
            vec![
                ".service.name: Invalid value: \"a.b\": must not contain dots",
                ".service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            service("", json!({ "number": 80, "name": "a" })),
            vec![
                ".service.name: Required value",
                ": Invalid value: \"\": cannot set both port name & port number",
            ],
        ),
        (service("a", json!({})), vec![": Required value: port name or number is required"]),
        (
            service("a", json!({ "name": "a--b" })),
            vec![".service.port.name: Invalid value: \"a--b\": must not contain consecutive hyphens"],
        ),
    ];
    for (backend, expected) in cases {
        let answer = case.post(INGRESSES, ingress(json!({ "defaultBackend": backend }))).await?;
        let expected: Vec<_> = expected.iter().map(|it| format!("spec.defaultBackend{it}")).collect();
        expect(&answer, &expected.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(())
}

async fn invalid_status_of_ingress_is_rejected(case: Case) -> Outcome {
    case.make(INGRESSES, ingress(json!({ "defaultBackend": web() }))).await?;
    let items =
        json!([{ "ip": "1.2" }, { "hostname": "1.2.3.4" }, { "hostname": "B_", "ip": "::ffff:1.2.3.4" }]);
    let status = json!({ "status": { "loadBalancer": { "ingress": items } } });
    let answer = case.patch(MERGE, "networking.k8s.io/v1 ingresses/a/status", status).await?;
    let path = "status.loadBalancer.ingress";
    let expected = [
        &*format!(
            "{path}[0].ip: Invalid value: \"1.2\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        ),
        &format!("{path}[1].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address"),
        &format!("{path}[2].ip: Invalid value: \"::ffff:1.2.3.4\": must not be an IPv4-mapped IPv6 address"),
        &format!("{path}[2].hostname: Invalid value: \"B_\": @"),
    ];
    expect(&answer, &expected)
}

async fn ingress_class_is_either_a_field_or_an_annotation(case: Case) -> Outcome {
    let mut wanted = ingress(json!({ "defaultBackend": web(), "ingressClassName": "x",
        "tls": [{ "hosts": ["*.a", "B"], "secretName": "Bad" }] }));
    wanted["metadata"]["annotations"] = json!({ "kubernetes.io/ingress.class": "y" });
    let expected = [
        "spec.tls[0].hosts[1]: Invalid value: \"B\": @",
        "spec.tls[0].secretName: Invalid value: \"Bad\": @",
        "annotations.kubernetes.io/ingress.class: Invalid value: \"y\": must match `ingressClassName` when both are \
         specified",
    ];
    expect(&case.post(INGRESSES, wanted.clone()).await?, &expected)?;
    wanted["spec"] = json!({ "defaultBackend": web() });
    let answer = case.post(INGRESSES, wanted).await?;
    let warning = "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
    same!((answer.status, answer.warnings()), (201, vec![warning.to_owned()]));
    Ok(())
}

const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

fn storage_class(case: &Case, mut fields: Value) -> Value {
    fields["apiVersion"] = json!("storage.k8s.io/v1");
    fields["kind"] = json!("StorageClass");
    fields["metadata"] = json!({ "name": case.unique("class") });
    fields
}

async fn invalid_storage_class_is_rejected(case: Case) -> Outcome {
    let post = async |fields: Value| case.post(STORAGE_CLASSES, storage_class(&case, fields)).await;
    expect(&post(json!({})).await?, &["provisioner: Required value"])?;
    let fields = json!({ "provisioner": "A_b/x", "parameters": { "": "x" }, "reclaimPolicy": "Recycle",
        "volumeBindingMode": "Odd" });
    let expected = [
        "provisioner: Invalid value: \"a_b/x\": prefix part @",
        "parameters: Invalid value: \"\": field can not be empty.",
        "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
        "volumeBindingMode: Unsupported value: \"Odd\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
    ];
    expect(&post(fields).await?, &expected)?;
    let expressions = json!([{ "key": "a", "values": ["x", "x"] }, { "key": "a", "values": [] }]);
    let topologies = json!([{}, { "matchLabelExpressions": expressions }]);
    let path = "allowedTopologies[1].matchLabelExpressions";
    let expected = [
        "allowedTopologies[0].matchLabelExpressions: Duplicate value: \"\"",
        "allowedTopologies[0].matchLabelExpressions: Duplicate value: \"\"",
        &format!("{path}[0].values[1]: Duplicate value: \"x\""),
        &format!("{path}[1].values: Required value"),
        &format!("{path}[1].key: Duplicate value: \"a\""),
    ];
    expect(&post(json!({ "provisioner": "a", "allowedTopologies": topologies })).await?, &expected)
}

async fn storage_class_is_immutable(case: Case) -> Outcome {
    let fields = json!({ "provisioner": "a", "parameters": { "a": "b" } });
    let made = case.make(STORAGE_CLASSES, storage_class(&case, fields)).await?;
    has!(made, { "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate" });
    let path = format!("{STORAGE_CLASSES}/{}", case.unique("class"));
    let change = json!({ "parameters": { "a": "c" }, "provisioner": "b", "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer" });
    let expected = [
        "parameters: Invalid value: {\"a\":\"c\"}: field is immutable",
        "provisioner: Invalid value: \"b\": field is immutable",
        "reclaimPolicy: Invalid value: \"Retain\": field is immutable",
        "volumeBindingMode: Invalid value: \"WaitForFirstConsumer\": field is immutable",
    ];
    expect(&case.patch(MERGE, &path, change).await?, &expected)?;
    let expected = ["provisioner: Required value", "provisioner: Invalid value: \"\": field is immutable"];
    expect(&case.patch(MERGE, &path, json!({ "provisioner": "" })).await?, &expected)?;
    case.merge(&path, json!({ "mountOptions": ["a"], "allowVolumeExpansion": true })).await?;
    case.delete(&path).await?.is(200)?;
    Ok(())
}

async fn volume_attributes_class_is_immutable(case: Case) -> Outcome {
    let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let name = case.unique("class");
    let mut class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": { "name": name } });
    let expected = [
        "driverName: Required value",
        "parameters: Required value: must contain at least one key/value pair",
    ];
    expect(&case.post(classes, class.clone()).await?, &expected)?;
    class["driverName"] = json!("a");
    class["parameters"] = json!({ "a": "b" });
    let made = case.make(classes, class).await?;
    same!(made["metadata"]["finalizers"], json!(["kubernetes.io/vac-protection"]));
    let change = json!({ "driverName": "b", "parameters": { "a": "c" } });
    let expected = [
        "driverName: Forbidden: updates to driverName are forbidden.",
        "parameters: Forbidden: updates to parameters are forbidden.",
    ];
    expect(&case.patch(MERGE, &format!("{classes}/{name}"), change).await?, &expected)
}

const PRIORITY_CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

fn priority_class(name: &str, mut fields: Value) -> Value {
    fields["apiVersion"] = json!("scheduling.k8s.io/v1");
    fields["kind"] = json!("PriorityClass");
    fields["metadata"] = json!({ "name": name });
    fields
}

async fn invalid_priority_class_is_rejected(case: Case) -> Outcome {
    let reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
                    only. error:";
    let cases = [
        (
            "system-x",
            json!({ "value": 1 }),
            vec![format!("{reserved} system-x is not a known system priority class")],
        ),
        (
            "system-node-critical",
            json!({ "value": 1 }),
            vec![format!("{reserved} value of system-node-critical PriorityClass must be 2000001000")],
        ),
        (
            "system-cluster-critical",
            json!({ "value": 2_000_000_000, "globalDefault": true }),
            vec![format!("{reserved} globalDefault of system-cluster-critical PriorityClass must be false")],
        ),
        (
            "a",
            json!({ "value": 1_000_000_001, "preemptionPolicy": "Odd" }),
            vec![
                "value: Forbidden: maximum allowed value of a user defined priority is 1000000000".to_owned(),
                "preemptionPolicy: Unsupported value: \"Odd\": supported values: \"PreemptLowerPriority\", \"Never\""
                    .to_owned(),
            ],
        ),
        (
            "a",
            json!({ "value": 1, "preemptionPolicy": "" }),
            vec!["preemptionPolicy: Required value".to_owned()],
        ),
    ];
    for (name, fields, expected) in cases {
        let answer = case.post(PRIORITY_CLASSES, priority_class(name, fields)).await?;
        expect(&answer, &expected.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(())
}

async fn priority_class_is_immutable(case: Case) -> Outcome {
    let name = case.unique("class");
    case.make(PRIORITY_CLASSES, priority_class(&name, json!({ "value": 1, "preemptionPolicy": "Never" })))
        .await?;
    let path = format!("{PRIORITY_CLASSES}/{name}");
    let change = json!({ "value": 2, "preemptionPolicy": "PreemptLowerPriority" });
    let expected = [
        "value: Forbidden: may not be changed in an update.",
        "preemptionPolicy: Invalid value: \"PreemptLowerPriority\": field is immutable",
    ];
    expect(&case.patch(MERGE, &path, change).await?, &expected)?;
    case.merge(&path, json!({ "description": "changed" })).await?;
    case.delete(&path).await?.is(200)?;
    Ok(())
}

fn limit_range(limits: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "a" }, "spec": { "limits": limits } })
}

async fn invalid_limit_range_is_rejected(case: Case) -> Outcome {
    let limits = json!([{ "type": "Odd" }, { "type": "Odd" }, { "type": "a/b" }]);
    let unknown = "must be a standard limit type or fully qualified";
    let expected = [
        &*format!("spec.limits[0].type: Invalid value: \"Odd\": {unknown}"),
        &format!("spec.limits[1].type: Invalid value: \"Odd\": {unknown}"),
        "spec.limits[1].type: Duplicate value: \"Odd\"",
    ];
    expect(&case.post("limitranges", limit_range(limits)).await?, &expected)?;
    let of_pod = json!({ "type": "Pod", "default": { "cpu": "1" }, "defaultRequest": { "cpu": "1" },
        "max": { "storage": "1" } });
    let limits = json!([of_pod, { "type": "Container", "default": { "odd": "1" }, "defaultRequest": { "cpu": "1" } },
        { "type": "PersistentVolumeClaim", "max": { "cpu": "1" } }]);
    let unknown =
        |field: &str, what: &str| format!("{field}: Invalid value: \"odd\": must be a standard {what}");
    let (default, request) = ("spec.limits[1].default[odd]", "spec.limits[1].defaultRequest[odd]");
    let expected = [
        "spec.limits[0].max[storage]: Invalid value: \"storage\": must be a standard resource for containers",
        "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
        "spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
        &unknown(default, "resource type or fully qualified"),
        &unknown(default, "resource for containers"),
        &unknown(request, "resource type or fully qualified"),
        &unknown(request, "resource for containers"),
        "spec.limits[2].limits: Required value: either minimum or maximum storage value is required, but neither was \
         provided",
    ];
    expect(&case.post("limitranges", limit_range(limits)).await?, &expected)?;
    case.make("limitranges", limit_range(json!([]))).await?;
    let answer = case.put("limitranges/a", limit_range(json!([{ "type": "Odd" }]))).await?;
    let unknown = "must be a standard limit type or fully qualified";
    expect(&answer, &[&format!("spec.limits[0].type: Invalid value: \"Odd\": {unknown}")])
}

async fn contradictory_limits_are_rejected(case: Case) -> Outcome {
    let limits = json!([{ "type": "Container", "min": { "cpu": "2" }, "max": { "cpu": "1" },
        "default": { "cpu": "500m" }, "defaultRequest": { "cpu": "3" }, "maxLimitRequestRatio": { "cpu": "500m" } }]);
    let path = "spec.limits[0]";
    let expected = [
        &*format!("{path}.min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"),
        &format!(
            "{path}.defaultRequest[cpu]: Invalid value: \"3\": default request value 3 is greater than max value 1"
        ),
        &format!(
            "{path}.defaultRequest[cpu]: Invalid value: \"3\": default request value 3 is greater than default limit \
             value 500m"
        ),
        &format!("{path}.default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 500m"),
        &format!("{path}.maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1"),
    ];
    expect(&case.post("limitranges", limit_range(limits)).await?, &expected)?;
    let limits = json!([{ "type": "Container", "min": { "cpu": "1" }, "max": { "cpu": "2" },
        "maxLimitRequestRatio": { "cpu": "3" } }]);
    let expected = format!(
        "{path}.maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000"
    );
    expect(&case.post("limitranges", limit_range(limits)).await?, &[&expected])?;
    let limits = json!([{ "type": "Container", "default": { "example.com/a": "1" },
        "defaultRequest": { "example.com/a": "2" } }]);
    let field = format!("{path}.defaultRequest[example.com/a]: Invalid value: \"2\":");
    let expected = [
        &*format!("{field} default request value 2 is greater than default limit value 1"),
        &format!("{field} default value 1 must equal to defaultRequest value 2 in example.com/a"),
    ];
    expect(&case.post("limitranges", limit_range(limits)).await?, &expected)
}

async fn limit_range_has_defaults(case: Case) -> Outcome {
    let limits = json!([
        { "type": "Container", "max": { "cpu": "2" }, "min": { "cpu": "1", "memory": "1Mi" } },
        { "type": "Pod", "max": { "cpu": "2" } },
    ]);
    let made = case.make("limitranges", limit_range(limits)).await?;
    has!(made["spec"]["limits"], [
        { "default": { "cpu": "2", "memory": null }, "defaultRequest": { "cpu": "2", "memory": "1Mi" } },
        { "default": null, "defaultRequest": null },
    ]);
    let mut nameless = limit_range(json!([]));
    nameless["metadata"] = json!({});
    let made = case.make("limitranges", nameless).await?;
    same!(made["metadata"]["name"].as_str().map(str::len), Some(36));
    Ok(())
}

fn quota(spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "a" }, "spec": spec })
}

async fn invalid_resource_quota_is_rejected(case: Case) -> Outcome {
    let cases = [
        (
            json!({ "odd": "1" }),
            vec![
                "spec.hard[odd]: Invalid value: \"odd\": must be a standard resource type or fully qualified",
                "spec.hard[odd]: Invalid value: \"odd\": must be a standard resource for quota",
            ],
        ),
        (
            json!({ "storage": "1" }),
            vec!["spec.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota"],
        ),
        (json!({ "pods": "500m" }), vec!["spec.hard[pods]: Invalid value: \"500m\": must be an integer"]),
        (
            json!({ "pods": "-1" }),
            vec!["spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0"],
        ),
    ];
    for (hard, expected) in cases {
        expect(&case.post("resourcequotas", quota(json!({ "hard": hard }))).await?, &expected)?;
    }
    let hard =
        json!({ "count/widgets.example.com": "1", "requests.example.com/gpu": "1", "hugepages-2Mi": "2Mi" });
    case.make("resourcequotas", quota(json!({ "hard": hard }))).await?;
    Ok(())
}

async fn invalid_scope_of_resource_quota_is_rejected(case: Case) -> Outcome {
    let spec =
        json!({ "hard": { "cpu": "1", "secrets": "1" }, "scopes": ["BestEffort", "NotBestEffort", "Odd"] });
    let given = "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\",\"Odd\"]:";
    let expected = [
        "unsupported scope applied to resource",
        "unsupported scope applied to resource",
        "unsupported scope applied to resource",
        "unsupported scope",
        "conflicting scopes",
    ];
    let expected = expected.map(|it| format!("{given} {it}"));
    let answer = case.post("resourcequotas", quota(spec)).await?;
    expect(&answer, &expected.iter().map(String::as_str).collect::<Vec<_>>())?;
    let expressions = json!([
        { "scopeName": "Odd", "operator": "Odd" },
        { "scopeName": "Terminating", "operator": "In" },
        { "scopeName": "PriorityClass", "operator": "Exists", "values": ["x"] },
    ]);
    let spec = json!({ "hard": { "secrets": "1" }, "scopeSelector": { "matchExpressions": expressions } });
    let path = "spec.scopeSelector.matchExpressions";
    let unsupported = format!(
        "{path}: Invalid value: {{\"MatchExpressions\":[{{\"ScopeName\":\"Odd\",\"Operator\":\"Odd\",\"Values\":null}},\
         {{\"ScopeName\":\"Terminating\",\"Operator\":\"In\",\"Values\":null}},{{\"ScopeName\":\"PriorityClass\",\
         \"Operator\":\"Exists\",\"Values\":[\"x\"]}}]}}: unsupported scope applied to resource"
    );
    let expected = [
        &*format!("{path}.scopeName: Invalid value: \"Odd\": unsupported scope"),
        &format!("{path}.operator: Invalid value: \"Odd\": not a valid selector operator"),
        &unsupported,
        &format!(
            "{path}.operator: Invalid value: \"In\": must be 'Exists' when scope is any of \
             ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
             ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
        ),
        &format!(
            "{path}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope \
             selector"
        ),
        &unsupported,
        &format!(
            "{path}.values: Invalid value: [\"x\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for \
             scope selector"
        ),
    ];
    expect(&case.post("resourcequotas", quota(spec)).await?, &expected)
}

async fn update_of_resource_quota_is_validated(case: Case) -> Outcome {
    case.make("resourcequotas", quota(json!({ "hard": { "pods": "1" }, "scopes": ["Terminating"] }))).await?;
    for (scopes, shown) in [
        (json!(["BestEffort", "NotTerminating"]), "[\"BestEffort\",\"NotTerminating\"]"),
        (Value::Null, "null"),
    ] {
        let answer = case.patch(MERGE, "resourcequotas/a", json!({ "spec": { "scopes": scopes } })).await?;
        expect(&answer, &[&format!("spec.scopes: Invalid value: {shown}: field is immutable")])?;
    }
    let status = json!({ "status": { "hard": { "storage": "1" }, "used": { "pods": "1.5" } } });
    let expected = [
        "status.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota",
        "status.used[pods]: Invalid value: \"1500m\": must be an integer",
    ];
    expect(&case.patch(MERGE, "resourcequotas/a/status", status).await?, &expected)
}

async fn internal_traffic_policy_of_external_name_is_dropped(case: Case) -> Outcome {
    let made = case.make("services", service("a")).await?;
    same!(made["spec"]["internalTrafficPolicy"], "Cluster");
    let external = json!({ "spec": { "type": "ExternalName", "externalName": "a.example.com" } });
    has!(case.merge("services/a", external).await?["spec"], { "internalTrafficPolicy": null, "clusterIP": null });
    has!(case.read("services/a").await?["spec"], { "internalTrafficPolicy": null });
    let internal = json!({ "spec": { "type": "ClusterIP", "externalName": null } });
    same!(case.merge("services/a", internal).await?["spec"]["internalTrafficPolicy"], "Cluster");
    let mut invalid = service("b");
    invalid["spec"] = json!({ "type": "ExternalName", "externalName": "a", "internalTrafficPolicy": "Odd" });
    let expected =
        "spec.internalTrafficPolicy: Unsupported value: \"Odd\": supported values: \"Cluster\", \"Local\"";
    expect(&case.post("services", invalid).await?, &[expected])
}

async fn cluster_address_is_immutable(case: Case) -> Outcome {
    case.make("services", service("a")).await?;
    for address in ["None", "192.168.1.1"] {
        let mut changed = service("a");
        changed["spec"]["clusterIP"] = json!(address);
        let expected = format!("spec.clusterIPs[0]: Invalid value: [{address:?}]: may not change once set");
        expect(&case.put("services/a", changed).await?, &[&expected])?;
    }
    Ok(())
}

async fn requested_addresses_and_ports_are_checked(case: Case) -> Outcome {
    let mut outside = service("a");
    outside["spec"]["clusterIP"] = json!("192.168.1.1");
    let field = "spec.clusterIPs: Invalid value: [\"192.168.1.1\"]: failed to allocate IP 192.168.1.1:";
    let expected = format!("{field} the provided network does not match the current range");
    expect(&case.post("services", outside.clone()).await?, &[&expected])?;
    let answer = case.post("services?dryRun=All", outside).await?;
    answer.expect_rejected_containing(
        422,
        "Invalid",
        "the provided IP (192.168.1.1) is not in the valid range",
    )?;
    let mut internal = service("a");
    internal["spec"]["ports"][0]["nodePort"] = json!(22);
    let unused = "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'";
    expect(&case.post("services", internal).await?, &[unused])?;
    case.make("services", service("a")).await?;
    let changed = json!({ "spec": { "ports": [{ "port": 80, "nodePort": 22 }] } });
    expect(&case.patch(MERGE, "services/a", changed).await?, &[unused])
}

async fn empty_attributes_class_of_claim_is_a_change(case: Case) -> Outcome {
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "a" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    case.make("persistentvolumeclaims", claim).await?;
    let change = json!({ "spec": { "volumeAttributesClassName": "" } });
    let answer = case.patch(MERGE, "persistentvolumeclaims/a", change).await?;
    let difference = "- \"VolumeAttributesClassName\": null\n+ \"VolumeAttributesClassName\": \"\"";
    answer.expect_rejected_containing(422, "Invalid", difference)?;
    Ok(())
}

async fn protocols_of_a_port_share_its_port_on_nodes(case: Case) -> Outcome {
    let port = |name: &str, protocol: &str| json!({ "name": name, "port": 53, "protocol": protocol });
    let mut dns = service("a");
    dns["spec"] = json!({ "type": "NodePort", "ports": [port("tcp", "TCP"), port("udp", "UDP"), { "name": "http", "port": 80 }] });
    let made = case.make("services", dns.clone()).await?;
    let numbers = [0, 1, 2].map(|index: usize| made["spec"]["ports"][index]["nodePort"].as_i64());
    same!((numbers[0] == numbers[1], numbers[0] == numbers[2], numbers[0].is_some()), (true, false, true));
    dns["metadata"]["name"] = json!("b");
    dns["spec"]["ports"] = json!([port("one", "TCP"), port("two", "TCP")]);
    let answer = case.post("services", dns).await?;
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let fields: Vec<_> = causes.iter().filter_map(|it| it["field"].as_str()).collect();
    same!((answer.status, fields), (422, vec!["spec.ports[1].nodePort", "spec.ports[1]"]));
    Ok(())
}

async fn windows_user_is_validated(case: Case) -> Outcome {
    let field = "spec.containers[0].securityContext.windowsOptions.runAsUserName";
    let cases = [
        ("", vec!["runAsUserName cannot be an empty string"]),
        ("a\\b\\c", vec!["runAsUserName cannot contain more than one backslash"]),
        ("a\nb", vec!["runAsUserName cannot contain control characters"]),
        (
            ".a?\\..",
            vec![
                "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
                "runAsUserName's User cannot contain only periods or spaces",
            ],
        ),
        ("a\\", vec!["runAsUserName's User cannot be empty"]),
        ("a;b", vec![r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#]),
    ];
    for (name, expected) in cases {
        let mut pod = super::objects::pod("a");
        pod["spec"]["containers"][0]["securityContext"] =
            json!({ "windowsOptions": { "runAsUserName": name } });
        let answer = case.post("pods", pod).await?;
        let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let found: Vec<_> = causes.iter().map(|it| (it["field"].clone(), it["message"].clone())).collect();
        let shown = json!(name);
        let expected: Vec<_> = expected
            .iter()
            .map(|why| (json!(field), json!(format!("Invalid value: {shown}: {why}"))))
            .collect();
        same!(found, expected);
    }
    Ok(())
}
