//! Match conditions: expressions that limit a webhook.

use serde_json::{Value, json};

use super::failures::nowhere;
use super::setup::{Type, allowed, configuration, denied, install, message, remove, rule, serve, webhook};
use crate::behaviors::objects::{config_map, deployment, labeled};
use crate::{Case, Outcome, TestResponse, same};

/// Expressions that compile.
const VALID: &[&str] = &[
    "true",
    "!object.a",
    "object.a || true",
    "has(object.a) && object.a",
    "object.spec.replicas > 3",
    "object.a.all(x, x.b)",
    "object == null && request == null && oldObject.a == null",
    "object.metadata.?labels.orValue({}) == {}",
    "object.?a[?'b'].hasValue()",
    "type(object) == map",
    "request.options.dryRun == []",
    "dyn(1) == 'a'",
    "request.userInfo.extra['a'][0] == 'x'",
    "object.x == 1.0 || object.x < 2u || 1 < 2.0",
    "object.a + 1 == 2",
    "[[], [1]] == [[1]] && {} == {'a': 1}",
    "'a' in request.userInfo.groups && 'a' in {'a': 1}",
    "[1, 2].map(x, x * 2).filter(x, x > 2).exists_one(x, x == 4)",
    "int('1') == 1 && string(1) + 'a' == '1a' && double(1) < 2.0",
    "'a b'.split(' ').join('-').replace('-', '').substring(1) == 'b'",
    "object.a ? true : false",
    "b'a' == bytes('a') && size(b'a') == 'a'.size()",
    "request.requestKind.group == '' && request.requestResource.version == 'v1'",
    "object.a in [object.b, object.c] && {'a': object.b, 'b': object.c} != {}",
    "[?object.?a, object.b] == [] && 'a'.matches('^[a-z]{1,3}$')",
    "namespaceObject.metadata.labels['a'] == 'b' || namespaceObject.spec.finalizers == []",
    "namespaceObject.status.conditions.all(it, it.type == 'a') || namespaceObject.metadata.generation > 1",
];

/// Expressions that do not compile, and the upstream messages.
const INVALID: &[(&str, &str)] = &[
    (
        "foo == 1",
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^",
    ),
    ("object.a", "must evaluate to bool but got dyn"),
    ("request.operation", "must evaluate to bool but got string"),
    (
        "request.foo == 1",
        "compilation failed: ERROR: <input>:1:8: undefined field 'foo'\n | request.foo == 1\n | .......^",
    ),
    (
        "request.operation == 1",
        "compilation failed: ERROR: <input>:1:19: found no matching overload for '_==_' applied to '(string, int)'\n | request.operation == 1\n | ..................^",
    ),
    (
        "1 +",
        "compilation failed: ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
    ),
    (
        "\"a\" + 1 == 2",
        "compilation failed: ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(string, int)'\n | \"a\" + 1 == 2\n | ....^",
    ),
    (
        "request.operation.foo",
        "compilation failed: ERROR: <input>:1:18: type 'string' does not support field selection\n | request.operation.foo\n | .................^",
    ),
    (
        "foo(1)",
        "compilation failed: ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^",
    ),
    (
        "\"a\".foo()",
        "compilation failed: ERROR: <input>:1:8: undeclared reference to 'foo' (in container '')\n | \"a\".foo()\n | .......^",
    ),
    (
        "size(1) > 0",
        "compilation failed: ERROR: <input>:1:5: found no matching overload for 'size' applied to '(int)'\n | size(1) > 0\n | ....^",
    ),
    (
        "object.a.exists(x, y == 1)",
        "compilation failed: ERROR: <input>:1:20: undeclared reference to 'y' (in container '')\n | object.a.exists(x, y == 1)\n | ...................^",
    ),
    (
        "[1,2].exists(x, x == \"a\")",
        "compilation failed: ERROR: <input>:1:19: found no matching overload for '_==_' applied to '(int, string)'\n | [1,2].exists(x, x == \"a\")\n | ..................^",
    ),
    ("true ? object.a : true", "must evaluate to bool but got dyn"),
    (
        "object.a ? true : 1",
        "compilation failed: ERROR: <input>:1:10: found no matching overload for '_?_:_' applied to '(dyn, bool, int)'\n | object.a ? true : 1\n | .........^",
    ),
    (
        "request.userInfo.groups.exists(g, g == 1)",
        "compilation failed: ERROR: <input>:1:37: found no matching overload for '_==_' applied to '(string, int)'\n | request.userInfo.groups.exists(g, g == 1)\n | ....................................^",
    ),
    (
        "1 in request.userInfo.groups",
        "compilation failed: ERROR: <input>:1:3: found no matching overload for '@in' applied to '(int, list(string))'\n | 1 in request.userInfo.groups\n | ..^",
    ),
    ("object", "must evaluate to bool but got dyn"),
    (
        "params == 1",
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params == 1\n | ^",
    ),
    ("object.a.?b.orValue(true)", "must evaluate to bool but got dyn"),
    (
        "object..a",
        "compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '..'\n | object..a\n | .......^",
    ),
    (
        "true &&\nfoo == 1",
        "compilation failed: ERROR: <input>:2:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^",
    ),
    (
        "{\"a\":1}.a == \"b\"",
        "compilation failed: ERROR: <input>:1:11: found no matching overload for '_==_' applied to '(int, string)'\n | {\"a\":1}.a == \"b\"\n | ..........^",
    ),
    (
        "[1,\"a\"] == [1]",
        "compilation failed: ERROR: <input>:1:4: expected type 'int' but found 'string'\n | [1,\"a\"] == [1]\n | ...^",
    ),
    (
        "foo.bar.baz == 1 && bar",
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo.bar.baz == 1 && bar\n | ^\nERROR: <input>:1:21: undeclared reference to 'bar' (in container '')\n | foo.bar.baz == 1 && bar\n | ....................^",
    ),
    (
        "variables.x",
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.x\n | ^",
    ),
    (
        "request.object.x == 1",
        "compilation failed: ERROR: <input>:1:8: undefined field 'object'\n | request.object.x == 1\n | .......^",
    ),
    ("1", "must evaluate to bool but got int"),
    (
        "\"a\".startsWith(1)",
        "compilation failed: ERROR: <input>:1:15: found no matching overload for 'startsWith' applied to 'string.(int)'\n | \"a\".startsWith(1)\n | ..............^",
    ),
    (
        "1 == 1.0",
        "compilation failed: ERROR: <input>:1:3: found no matching overload for '_==_' applied to '(int, double)'\n | 1 == 1.0\n | ..^",
    ),
    (
        "object.a in ['x', object.b, 1]",
        "compilation failed: ERROR: <input>:1:25: expected type 'string' but found 'dyn'\n | object.a in ['x', object.b, 1]\n | ........................^",
    ),
    (
        "{'a': object.x, 'b': 1, 'c': 1} == {}",
        "compilation failed: ERROR: <input>:1:22: expected type 'dyn' but found 'int'\n | {'a': object.x, 'b': 1, 'c': 1} == {}\n | .....................^\nERROR: <input>:1:30: expected type 'dyn' but found 'int'\n | {'a': object.x, 'b': 1, 'c': 1} == {}\n | .............................^",
    ),
    (
        "object.a.matches('[')",
        "compilation failed: ERROR: <input>:1:18: invalid matches argument\n | object.a.matches('[')\n | .................^",
    ),
    (
        "[?1] == [2]",
        "compilation failed: ERROR: <input>:1:3: expected type 'optional_type(int)' but found 'int'\n | [?1] == [2]\n | ..^",
    ),
    (
        "{?'a': 1} == {'a': 2}",
        "compilation failed: ERROR: <input>:1:8: expected type 'optional_type(int)' but found 'int'\n | {?'a': 1} == {'a': 2}\n | .......^",
    ),
    (
        "namespaceObject.spec.foo == 1",
        "compilation failed: ERROR: <input>:1:21: undefined field 'foo'\n | namespaceObject.spec.foo == 1\n | ....................^",
    ),
    (
        "namespaceObject.metadata.labels['a'] == 1",
        "compilation failed: ERROR: <input>:1:38: found no matching overload for '_==_' applied to '(string, int)'\n | namespaceObject.metadata.labels['a'] == 1\n | .....................................^",
    ),
];

/// Returns conditions with generated names.
fn conditions(expressions: &[&str]) -> Value {
    let named = |(index, expression)| json!({ "name": format!("c-{index}"), "expression": expression });
    expressions.iter().enumerate().map(named).collect()
}

pub(super) async fn match_condition_is_evaluated(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut see = webhook(&case, "see", &client);
    see["matchConditions"] = conditions(&["object.metadata.name == 'b' && !has(oldObject.metadata)"]);
    let name = install(&case, Type::Validating, "cel", &[see]).await?;
    case.make("configmaps", config_map("a")).await?;
    case.make("configmaps", config_map("b")).await?;
    let called: Vec<_> = requests.all().iter().map(|it| it["name"].clone()).collect();
    same!(called, [json!("b")]);
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn match_condition_reads_request_and_old_object(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut see = webhook(&case, "see", &client);
    see["matchConditions"] = conditions(&[
        "request.operation == 'UPDATE' && request.resource.resource == 'configmaps'",
        "request.kind.kind == 'ConfigMap' && request.name == 'a' && !request.dryRun",
        "request.userInfo.groups.exists(it, it.startsWith('system:'))",
        "!has(request.subResource) && request.options.fieldManager == 'me'",
        "oldObject.data.key != object.data.key && size(object.data) > 0",
        "object.metadata.?labels['team'].orValue('') in ['', 'none']",
        "namespaceObject == null && object.data.all(key, key.matches('^[a-z]+$'))",
        "object.data.key.upperAscii().split('-').map(it, size(it)) == [3, 3]",
        "!has(namespaceObject.metadata) && !has(object.data.key.foo) && !object.?data.key.foo.hasValue()",
        "!object.?data.key.?foo.hasValue() && has(object.?data.key)",
    ]);
    let name = install(&case, Type::Mutating, "cel", &[see]).await?;
    let mut map = case.make("configmaps?fieldManager=me", config_map("a")).await?;
    map["data"]["key"] = json!("new-one");
    map = case.replace("configmaps/a?fieldManager=me", map).await?;
    same!(requests.all().len(), 1);
    map["data"]["key"] = json!("newer");
    map = case.replace("configmaps/a?fieldManager=me", map).await?;
    map["data"]["key"] = json!("one-two");
    case.replace("configmaps/a?fieldManager=other", map).await?;
    same!(requests.all().len(), 1);
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn failed_match_condition_follows_failure_policy(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "fail", |_| denied("never called"));
    let expressions = [
        ("object.data.absent == 'b'", "no such key: absent"),
        ("oldObject.data.key == 'b'", "no such key: data"),
        ("1 / (size(object.data) - 1) == 1", "division by zero"),
        ("1 % (size(object.data) - 1) == 1", "modulus by zero"),
        ("[1, 2][size(object.data) + 4] == 1", "index out of bounds: 5"),
        ("object.data.key > 1", "no such overload"),
        ("object.data.key.startsWith(object.data)", "no such overload"),
        ("object.data.key + 1 == 2", "no such overload"),
        ("object.data && true", "no such overload"),
        ("!object.data", "no such overload"),
        ("object.data.key.foo == 'a'", "no such key: foo"),
        ("int(object.data.key) == 1", "type conversion error from 'string' to 'int'"),
        ("size(object.data) + 9223372036854775807 == 1", "integer overflow"),
        ("object.data.key.charAt(77) == ''", "index out of range: 77"),
        ("object.data.absent == 'b' || object.data.other == 'c'", "no such key: absent"),
        ("object.data.absent == 'b' && object.data.other == 'c'", "no such key: absent"),
        ("object.data.?absent.value() == 'b'", "optional.none() dereference"),
        ("'a' in object.metadata.name", "no such overload"),
        ("has(object.metadata.managedFields.foo)", "unsupported index type 'string' in list"),
        ("object.metadata.managedFields.foo == 1", "unsupported index type 'string' in list"),
    ];
    let webhooks: Vec<_> = expressions
        .iter()
        .enumerate()
        .map(|(index, (expression, _))| {
            let mut failing = webhook(&case, &format!("fail-{index}"), &client);
            failing["matchConditions"] = conditions(&["true", expression]);
            failing["objectSelector"] = json!({ "matchLabels": { "number": index.to_string() } });
            failing
        })
        .collect();
    let name = install(&case, Type::Validating, "cel", &webhooks).await?;
    let mut wrong = Vec::new();
    for (index, (expression, why)) in expressions.iter().enumerate() {
        let map = labeled("a", json!({ "number": index.to_string() }));
        let answer = case.post("configmaps", map).await?;
        let expected =
            format!("configmaps \"a\" is forbidden: expression '{expression}' resulted in error: {why}");
        if message(&answer) != expected {
            wrong.push(format!("{expression}: {}", message(&answer)));
        }
    }
    same!(requests.all().len(), 0);
    anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    remove(&case, Type::Validating, &name).await
}

/// Returns the response to the creation of a configuration with these conditions, which is not stored.
async fn submit(case: &Case, conditions: Value) -> anyhow::Result<TestResponse> {
    let mut limited = webhook(case, "limited", &nowhere());
    limited["matchConditions"] = conditions;
    let path = format!("{}?dryRun=All", Type::Mutating.path());
    case.post(&path, configuration(&case.unique("limited"), json!([limited]))).await
}

pub(super) async fn valid_match_condition_is_accepted(case: Case) -> Outcome {
    let mut wrong = Vec::new();
    for expression in VALID {
        let answer = submit(&case, conditions(&[expression])).await?;
        if answer.status != 201 {
            wrong.push(format!("{expression}:\n{}", message(&answer)));
        }
    }
    anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

pub(super) async fn invalid_match_condition_is_rejected(case: Case) -> Outcome {
    let mut wrong = Vec::new();
    for (expression, why) in INVALID {
        let answer = submit(&case, conditions(&[expression])).await?;
        let shown = serde_json::to_string(expression)?;
        let expected = format!("webhooks[0].matchConditions[0].expression: Invalid value: {shown}: {why}");
        if !message(&answer).ends_with(&expected) {
            wrong.push(format!("{expression}:\n{}", message(&answer)));
        }
    }
    anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

pub(super) async fn match_condition_needs_unique_qualified_name(case: Case) -> Outcome {
    let prefix = "webhooks[0].matchConditions[0]";
    let name = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                alphanumeric character";
    let valid = |name: &str| json!({ "name": name, "expression": "true" });
    for (given, why) in [
        (json!([{ "name": "a" }]), format!("{prefix}.expression: Required value")),
        (json!([{ "expression": "true" }]), format!("{prefix}.name: Required value")),
        (json!([valid("a b")]), format!("{prefix}.name: Invalid value: \"a b\": {name}")),
        (
            json!([valid("a"), valid("a")]),
            "webhooks[0].matchConditions[1].name: Duplicate value: \"a\"".to_owned(),
        ),
        (
            (0..65).map(|it| valid(&format!("c-{it}"))).collect(),
            "webhooks[0].matchConditions: Too many: 65: must have at most 64 items".to_owned(),
        ),
    ] {
        submit(&case, given).await?.expect_rejected_containing(422, "Invalid", &why)?;
    }
    Ok(())
}

pub(super) async fn false_match_condition_outweighs_failed_one(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "skip", |_| denied("never called"));
    let mut skipped = webhook(&case, "skip", &client);
    skipped["matchConditions"] = conditions(&["object.data.absent == ''", "object.metadata.name == 'b'"]);
    let name = install(&case, Type::Mutating, "cel", &[skipped]).await?;
    case.make("configmaps", config_map("a")).await?;
    let why = "configmaps \"b\" is forbidden: expression 'object.data.absent == ''' resulted in error: no such key: \
               absent";
    case.post("configmaps", config_map("b")).await?.expect_rejected(403, "Forbidden", why)?;
    same!(requests.all().len(), 0);
    remove(&case, Type::Mutating, &name).await
}

pub(super) async fn failed_match_condition_skips_webhook_that_is_ignored(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "skip", |_| denied("never called"));
    let mut skipped = webhook(&case, "skip", &client);
    skipped["failurePolicy"] = json!("Ignore");
    skipped["matchConditions"] = conditions(&["object.data.absent == ''", "true"]);
    let name = install(&case, Type::Validating, "cel", &[skipped]).await?;
    case.make("configmaps", config_map("a")).await?;
    same!(requests.all().len(), 0);
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn all_failed_match_conditions_are_reported(case: Case) -> Outcome {
    let (client, _) = serve(&case, "fail", |_| denied("never called"));
    let mut failing = webhook(&case, "fail", &client);
    failing["matchConditions"] = conditions(&["object.data.a == ''", "true", "object.data.b == ''"]);
    let name = install(&case, Type::Validating, "cel", &[failing]).await?;
    let why = "configmaps \"a\" is forbidden: [expression 'object.data.a == ''' resulted in error: no such key: a, \
               expression 'object.data.b == ''' resulted in error: no such key: b]";
    case.post("configmaps", config_map("a")).await?.expect_rejected(403, "Forbidden", why)?;
    remove(&case, Type::Validating, &name).await
}

pub(super) async fn match_condition_reads_object_of_subresource(case: Case) -> Outcome {
    let (client, requests) = serve(&case, "see", allowed);
    let mut see = webhook(&case, "see", &client);
    see["rules"] = json!([rule("apps", "v1", &["deployments/scale"], &["UPDATE"])]);
    see["matchConditions"] = conditions(&[
        "object.kind == 'Scale' && object.spec.replicas == 5 && oldObject.spec.replicas == 2",
        "request.subResource == 'scale' && request.kind.group == 'autoscaling'",
    ]);
    let name = install(&case, Type::Validating, "cel", &[see]).await?;
    case.make("apps/v1 deployments", deployment("a")).await?;
    for replicas in [4, 2, 5] {
        let scale = json!({ "spec": { "replicas": replicas } });
        case.merge("apps/v1 deployments/a/scale", scale).await?;
    }
    same!(requests.all().len(), 1);
    remove(&case, Type::Validating, &name).await
}
