//! The data of a ControllerRevision, which records a pod template.
//!
//! Upstream compares and hashes the bytes, so each byte counts. Upstream encodes the typed template: unknown and empty
//! fields are missing, except for the fields that Go always writes.

use serde_json::Value;

use crate::DumpError;
use crate::fields::{Field, Scalar, Shape, TEMPLATE, types};
use crate::fnv::fnv1_32;
use crate::json::{Numbers, push_list, push_number, push_object, push_text, push_value};

/// Returns the data of a ControllerRevision for a pod template: a strategic merge patch that replaces the template.
///
/// # Errors
/// [`DumpError`] if the value is not a pod template.
pub fn revision_data(template: &Value, numbers: Numbers) -> Result<String, DumpError> {
    let encoder = Encoder { numbers };
    let mut members = vec![("$patch", "\"replace\"".to_owned())];
    let shape = types().shape(TEMPLATE);
    let Some(Shape::Struct(fields)) = shape else { return Err(DumpError::WrongType { go_type: TEMPLATE }) };
    encoder.members(fields, Some(template), &mut members)?;
    let mut data = String::with_capacity(2048);
    data.push_str(r#"{"spec":{"template":"#);
    push_object(&mut data, members);
    data.push_str("}}");
    Ok(data)
}

/// Returns the hash in the name of a StatefulSet's revision with this data.
///
/// A collision count of zero is part of the hash, a missing count is not.
pub fn revision_hash(data: &str, collision_count: Option<i32>) -> String {
    let mut hashed = data.to_owned();
    if let Some(count) = collision_count {
        hashed.push_str(&count.to_string());
    }
    crate::safe_encode(&fnv1_32(hashed.as_bytes()).to_string())
}

struct Encoder {
    numbers: Numbers,
}

impl Encoder {
    /// Adds the fields of a struct that JSON contains.
    fn members(
        &self,
        fields: &'static [Field],
        value: Option<&Value>,
        members: &mut Vec<(&'static str, String)>,
    ) -> Result<(), DumpError> {
        for field in fields {
            let Some(name) = field.json_name else {
                if let Some(Shape::Struct(inlined)) = types().shape(field.go_type) {
                    self.members(inlined, value, members)?;
                }
                continue;
            };
            let value = value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
            if field.is_always_written || !is_empty(field.go_type, value) {
                let mut text = String::new();
                self.push(&mut text, field.go_type, value)?;
                members.push((name, text));
            }
        }
        Ok(())
    }

    /// Appends a value; a missing value is the zero value of its type.
    fn push(&self, json: &mut String, go_type: &'static str, value: Option<&Value>) -> Result<(), DumpError> {
        let wrong = || DumpError::WrongType { go_type };
        match (types().shape(go_type).ok_or_else(wrong)?, value) {
            (Shape::Pointer(_) | Shape::RawJson | Shape::Time, None) => json.push_str("null"),
            (Shape::Pointer(target), value) => self.push(json, target, value)?,
            (Shape::List(element), value) => self.list(json, element, value).ok_or_else(wrong)??,
            (Shape::Map(element), value) => self.map(json, element, value).ok_or_else(wrong)??,
            (Shape::Struct(fields), value) => {
                let mut members = Vec::new();
                self.members(fields, value, &mut members)?;
                push_object(json, members);
            }
            (Shape::Scalar(Scalar::Text), None) => json.push_str("\"\""),
            (Shape::Scalar(Scalar::Bool), None) => json.push_str("false"),
            (Shape::Scalar(Scalar::Integer) | Shape::IntOrString, None) => json.push('0'),
            (Shape::Quantity, None) => json.push_str("\"0\""),
            (Shape::Quantity, Some(Value::Number(number))) => push_text(json, &number.to_string()),
            (Shape::Scalar(scalar), Some(value)) => self.scalar(json, scalar, value).ok_or_else(wrong)?,
            (Shape::Quantity | Shape::IntOrString | Shape::Time | Shape::RawJson, Some(value)) => {
                push_value(json, value, self.numbers);
            }
        }
        Ok(())
    }

    fn list(
        &self,
        json: &mut String,
        element: &'static str,
        value: Option<&Value>,
    ) -> Option<Result<(), DumpError>> {
        let items = match value {
            Some(value) => value.as_array()?.as_slice(),
            None => &[],
        };
        // The controller manager decodes protobuf, in which an empty list is missing.
        if items.is_empty() {
            json.push_str("null");
            return Some(Ok(()));
        }
        let mut result = Ok(());
        push_list(json, items, |json, item| {
            let item = Some(item).filter(|item| !item.is_null());
            if result.is_ok() {
                result = self.push(json, element, item);
            }
        });
        Some(result)
    }

    fn map(
        &self,
        json: &mut String,
        element: &'static str,
        value: Option<&Value>,
    ) -> Option<Result<(), DumpError>> {
        let Some(value) = value else {
            json.push_str("null");
            return Some(Ok(()));
        };
        let mut members = Vec::new();
        for (key, value) in value.as_object()? {
            let mut text = String::new();
            if let Err(error) = self.push(&mut text, element, Some(value).filter(|value| !value.is_null())) {
                return Some(Err(error));
            }
            members.push((key.as_str(), text));
        }
        push_object(json, members);
        Some(Ok(()))
    }

    fn scalar(&self, json: &mut String, scalar: Scalar, value: &Value) -> Option<()> {
        match scalar {
            Scalar::Text => push_text(json, value.as_str()?),
            Scalar::Bool => json.push_str(if value.as_bool()? { "true" } else { "false" }),
            Scalar::Integer => {
                value.as_i64()?;
                push_number(json, value.as_number()?, self.numbers);
            }
        }
        Some(())
    }
}

/// Returns whether Go leaves out a field with the option `omitempty`.
fn is_empty(go_type: &'static str, value: Option<&Value>) -> bool {
    let Some(value) = value else { return true };
    match types().shape(go_type) {
        Some(Shape::List(_)) => value.as_array().is_some_and(Vec::is_empty),
        Some(Shape::Map(_)) => value.as_object().is_some_and(serde_json::Map::is_empty),
        Some(Shape::Scalar(Scalar::Text)) => value.as_str() == Some(""),
        Some(Shape::Scalar(Scalar::Bool)) => value.as_bool() == Some(false),
        Some(Shape::Scalar(Scalar::Integer)) => value.as_i64() == Some(0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{revision_data, revision_hash};
    use crate::json::Numbers;

    /// Data that upstream computes for [`template`].
    const DATA: &str = concat!(
        r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":["#,
        r#"{"args":["\u2028é"],"image":"a\u003cb\u003e\u0026c","imagePullPolicy":"Always","name":"c","#,
        r#""resources":{"limits":{"cpu":"1500m","memory":"64Mi"}},"terminationMessagePath":"/dev/termination-log","#,
        r#""terminationMessagePolicy":"File"},{"image":"x","name":"d","resources":{}}],"dnsPolicy":"ClusterFirst","#,
        r#""restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"#,
        r#""terminationGracePeriodSeconds":9007199254740992}}}}"#,
    );

    fn template() -> Value {
        json!({
            "metadata": { "creationTimestamp": null, "labels": { "app": "web" } },
            "spec": {
                "containers": [
                    {
                        "name": "c", "image": "a<b>&c", "args": ["\u{2028}é"], "imagePullPolicy": "Always",
                        "resources": { "limits": { "memory": "64Mi", "cpu": "1500m" }, "requests": {} },
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                        "tty": false, "unknown": 1,
                    },
                    { "name": "d", "image": "x", "env": [] },
                ],
                "terminationGracePeriodSeconds": 9_007_199_254_740_993_i64, "hostNetwork": false,
                "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
                "securityContext": {}, "nodeName": "",
            },
        })
    }

    #[test]
    fn data_equals_upstream_vectors() {
        assert_eq!(DATA.len(), 529);
        assert_eq!(revision_data(&template(), Numbers::Float).as_deref(), Ok(DATA));
        let exact = DATA.replace("9007199254740992", "9007199254740993");
        assert_eq!(revision_data(&template(), Numbers::Integer), Ok(exact));
    }

    #[test]
    fn hashes_equal_upstream_vectors() {
        let exact = DATA.replace("9007199254740992", "9007199254740993");
        for (data, hash) in [("{}", "cccc864bc"), (DATA, "6489897978"), (&exact, "5df5b7b4b9")] {
            assert_eq!(revision_hash(data, Some(0)), hash);
            assert_ne!(revision_hash(data, Some(1)), hash);
        }
    }

    #[test]
    fn fields_without_omitempty_are_always_written() {
        let volumes = json!([
            { "name": "p", "projected": {} },
            { "name": "c", "configMap": { "name": "", "items": [] } },
            { "name": "e", "emptyDir": {} },
            { "name": "d", "downwardAPI": { "items": [
                { "path": "cpu", "resourceFieldRef": { "resource": "limits.cpu" } },
            ] } },
        ]);
        let probe = json!({ "tcpSocket": {}, "timeoutSeconds": 0 });
        let container = json!({ "image": "x", "startupProbe": probe, "env": [{ "value": "" }] });
        let template = json!({ "spec": { "containers": [container], "volumes": volumes } });
        let expected = concat!(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{},"spec":{"containers":[{"env":[{"name":""}],"#,
            r#""image":"x","name":"","resources":{},"startupProbe":{"tcpSocket":{"port":0}}}],"volumes":["#,
            r#"{"name":"p","projected":{"sources":null}},{"configMap":{},"name":"c"},{"emptyDir":{},"name":"e"},"#,
            r#"{"downwardAPI":{"items":[{"path":"cpu","resourceFieldRef":{"divisor":"0","resource":"limits.cpu"}}]},"#,
            r#""name":"d"}]}}}}"#,
        );
        assert_eq!(revision_data(&template, Numbers::Float).as_deref(), Ok(expected));
    }

    #[test]
    fn large_integers_are_rounded_like_floats() {
        for (integer, rounded) in [
            (9_007_199_254_740_992, "9007199254740992"),
            (i64::MAX, "9223372036854776000"),
            (-9_007_199_254_740_995, "-9007199254740996"),
        ] {
            let template = json!({ "spec": { "terminationGracePeriodSeconds": integer } });
            let data = revision_data(&template, Numbers::Float).expect("a template");
            assert!(data.contains(&format!(r#""terminationGracePeriodSeconds":{rounded}}}"#)), "{data}");
        }
    }

    #[test]
    fn value_of_another_type_is_an_error() {
        let template = json!({ "spec": { "containers": {} } });
        assert!(revision_data(&template, Numbers::Float).is_err());
    }
}
