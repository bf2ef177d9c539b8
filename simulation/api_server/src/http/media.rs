//! Media types of requests and responses.
//!
//! Responses are JSON or protobuf. Requests can also be YAML.

use ::http::HeaderMap;
use ::http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use windlass_object::wire::protobuf::Transcoder;
use windlass_schema::check::{self, Parsed};

use crate::registry::{FieldValidation, PatchKind};
use crate::status::Status;

/// Media types of responses.
const ANSWERED: &str = "application/json, application/vnd.kubernetes.protobuf";
/// Media types of requests.
const READ: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The form of an object or list in the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    /// The full object or list.
    Whole,
    /// A `Table`.
    Table(Meta),
    /// Only the metadata of the object.
    Partial(Meta),
    /// Only the metadata of the items.
    PartialList(Meta),
}

/// A version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meta {
    V1,
    V1Beta1,
}

impl Meta {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Meta::V1 => "meta.k8s.io/v1",
            Meta::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    /// YAML, which includes JSON.
    Yaml,
    /// Protobuf, which most Go clients send for built-in kinds.
    Protobuf,
}

/// One media type of an `Accept` header.
#[derive(Debug, Default)]
pub(crate) struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    quality: f32,
    as_kind: &'a str,
    group: &'a str,
    version: &'a str,
    pretty: bool,
}

/// Returns the clauses of the `Accept` headers in order of preference. A missing header accepts everything.
pub(crate) fn accepted(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
        .map(Clause::parse)
        .collect();
    if clauses.is_empty() {
        clauses.push(Clause { main: "*", sub: "*", quality: 1.0, ..Clause::default() });
    }
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(b.precision().cmp(&a.precision())));
    clauses
}

impl<'a> Clause<'a> {
    fn parse(clause: &'a str) -> Clause<'a> {
        let mut parts = clause.split(';').map(str::trim);
        let (main, sub) = parts.next().unwrap_or_default().split_once('/').unwrap_or_default();
        let mut found = Clause { main, sub, quality: 1.0, ..Clause::default() };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "q" => found.quality = value.parse().unwrap_or(1.0),
                "as" => found.as_kind = value,
                "g" => found.group = value,
                "v" => found.version = value,
                "pretty" => found.pretty = value == "1",
                _ => {}
            }
        }
        found
    }

    fn precision(&self) -> u8 {
        u8::from(self.main != "*") + u8::from(self.sub != "*")
    }

    /// Returns whether the clause accepts JSON.
    pub(crate) fn takes_json(&self) -> bool {
        matches!((self.main, self.sub), ("application", "json" | "*") | ("*", "*"))
    }

    /// Returns whether the clause accepts protobuf.
    pub(crate) fn takes_protobuf(&self) -> bool {
        (self.main, self.sub) == ("application", "vnd.kubernetes.protobuf")
    }

    /// Returns whether the client requests indented output.
    pub(crate) fn is_pretty(&self) -> bool {
        self.pretty
    }

    /// Returns the requested conversion as kind, group and version, if there is one.
    pub(crate) fn conversion(&self) -> Option<(&str, &str, &str)> {
        let plain = self.as_kind.is_empty() && self.group.is_empty() && self.version.is_empty();
        (!plain).then_some((self.as_kind, self.group, self.version))
    }

    fn form(&self) -> Option<ResponseForm> {
        let Some((kind, group, version)) = self.conversion() else { return Some(ResponseForm::Whole) };
        let meta = match (group, version) {
            ("meta.k8s.io", "v1") => Meta::V1,
            ("meta.k8s.io", "v1beta1") => Meta::V1Beta1,
            _ => return None,
        };
        match kind {
            "Table" => Some(ResponseForm::Table(meta)),
            "PartialObjectMetadata" => Some(ResponseForm::Partial(meta)),
            "PartialObjectMetadataList" => Some(ResponseForm::PartialList(meta)),
            _ => None,
        }
    }
}

/// Returns the form of the objects in the response. `supports_protobuf` states whether full objects have an encoding.
pub(crate) fn form(
    headers: &HeaderMap,
    custom: bool,
    supports_protobuf: bool,
) -> Result<ResponseForm, Status> {
    let clauses = accepted(headers);
    let encodes = |clause: &Clause<'_>| match clause.form() {
        Some(ResponseForm::Whole) => supports_protobuf,
        Some(ResponseForm::Partial(meta) | ResponseForm::PartialList(meta)) => meta == Meta::V1,
        Some(ResponseForm::Table(_)) | None => false,
    };
    let is_spoken = |clause: &&Clause<'_>| clause.takes_json() || clause.takes_protobuf() && encodes(clause);
    let mut spoken = clauses.iter().filter(is_spoken).peekable();
    // Upstream's router, which runs first, checks only the paths of built-in kinds.
    if spoken.peek().is_none() && !custom {
        return Err(no_representation());
    }
    spoken.find_map(Clause::form).ok_or_else(|| {
        let message = format!("only the following media types are accepted: {ANSWERED}");
        Status::new(406, "NotAcceptable", message)
    })
}

/// Returns whether the client prefers protobuf to JSON.
pub(crate) fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let clauses = accepted(headers);
    let first = clauses.iter().find(|clause| clause.takes_json() || clause.takes_protobuf());
    first.is_some_and(Clause::takes_protobuf)
}

/// Removes protobuf from the accepted media types, unless the client accepts nothing else.
pub(crate) fn prefer_json(headers: &mut HeaderMap) {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let clauses = accepts.flat_map(|value| value.split(',')).map(str::trim);
    let rest: Vec<_> = clauses.filter(|clause| !Clause::parse(clause).takes_protobuf()).collect();
    if let (false, Ok(value)) = (rest.is_empty(), HeaderValue::try_from(rest.join(","))) {
        headers.insert(ACCEPT, value);
    }
}

/// Returns 406 with the message of upstream's router: the server supports none of the accepted media types.
pub(crate) fn no_representation() -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {ANSWERED}");
    let mut status = Status::new(406, "NotAcceptable", message);
    status.details = Some(Box::default());
    status
}

/// Returns the format of a request body.
pub(crate) fn format(headers: &HeaderMap) -> Result<Format, Status> {
    match content_type(headers) {
        "" | "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(unsupported(READ)),
    }
}

/// Returns the format of a patch. Custom kinds do not support strategic merge.
pub(crate) fn patch_kind(headers: &HeaderMap, custom: bool) -> Result<PatchKind, Status> {
    match content_type(headers) {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" if !custom => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        _ if custom => Err(unsupported(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
        // This message is from upstream's router, which checks only built-in kinds.
        _ => {
            let mut status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            status.details = Some(Box::default());
            Err(status)
        }
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

fn unsupported(supported: &str) -> Status {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {supported}"
    );
    Status::new(415, "UnsupportedMediaType", message)
}

/// Decodes the object in a body. `kind` is the expected kind.
pub(crate) fn object(body: &[u8], format: Format, kind: &str) -> Result<Parsed, Status> {
    let refused = |why: String| {
        let message = check::unrecognized(kind, body, &why);
        Status::bad_request(match format {
            Format::Json => message,
            Format::Yaml => message.replacen("json parse error", "yaml parse error", 1),
            Format::Protobuf => message.replacen("couldn't get version/kind; json parse error: ", "", 1),
        })
    };
    if format == Format::Protobuf && body.is_empty() {
        return Err(refused("empty data".to_owned()));
    }
    let parsed = read(body, format).map_err(refused)?;
    check::version_and_kind(&parsed.value)
        .map_err(|why| Status::bad_request(check::unrecognized(kind, body, &why)))?;
    Ok(parsed)
}

/// Decodes the options of a deletion in a body.
pub(crate) fn options(body: &[u8], format: Format) -> Result<Value, Status> {
    let refused = |why: String| {
        Status::bad_request(match format {
            Format::Json => format!("couldn't get version/kind; json parse error: {why}"),
            Format::Yaml => format!("yaml: {why}"),
            Format::Protobuf => why,
        })
    };
    let parsed = read(body, format).map_err(refused)?;
    check::version_and_kind(&parsed.value).map_err(refused)?;
    Ok(parsed.value)
}

/// Decodes the patch in a body.
pub(crate) fn patch(body: &[u8], kind: PatchKind, validation: FieldValidation) -> Result<Parsed, Status> {
    let format = if kind == PatchKind::Apply { Format::Yaml } else { Format::Json };
    let parsed = read(body, format);
    if let (PatchKind::Apply, Ok(Parsed { value, .. })) = (kind, &parsed)
        && !(value.is_object() || value.is_null())
    {
        return Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value \
             of type map[string]interface {{}}",
            check::kind_of(value)
        )));
    }
    parsed.map_err(|why| {
        Status::bad_request(match kind {
            PatchKind::Apply => format!("error decoding YAML: {why}"),
            PatchKind::Strategic => why,
            PatchKind::Merge if validation == FieldValidation::Ignore => "Invalid JSON Patch".to_owned(),
            PatchKind::Json if validation == FieldValidation::Ignore => why,
            PatchKind::Json | PatchKind::Merge => format!("error decoding patch: {why}"),
        })
    })
}

/// Decodes JSON, or YAML if the format allows it.
fn read(body: &[u8], format: Format) -> Result<Parsed, String> {
    let sole = |value| Parsed { value, duplicates: Vec::new() };
    if format == Format::Protobuf {
        let mut json = Vec::new();
        Transcoder::new().object(body, &mut json).map_err(|error| error.to_string())?;
        return serde_json::from_slice(&json).map(sole).map_err(|error| error.to_string());
    }
    match (check::parse(body), format) {
        (Err(_), Format::Yaml) => {
            let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
            serde_saphyr::from_str(text).map(sole).map_err(|error| {
                // The other lines quote the text.
                let why = error.to_string().lines().next().unwrap_or_default().to_owned();
                if why.contains("unclosed bracket") { unclosed(text) } else { why }
            })
        }
        (found, _) => found,
    }
}

/// Returns the message of Go's YAML decoder for text that ends inside of brackets.
fn unclosed(text: &str) -> String {
    let (line, text) = (text.lines().count().max(1), text.trim_end());
    let open = text.rfind(['{', '[']).and_then(|at| text.as_bytes().get(at));
    let expected = match text.chars().next_back() {
        Some('{' | '[' | ',' | ':') | None => "node content",
        _ if open == Some(&b'{') => "',' or '}'",
        _ => "',' or ']'",
    };
    format!("error converting YAML to JSON: yaml: line {line}: did not find expected {expected}")
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn with(name: ::http::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn first_supported_response_form_is_used() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let cases = [
            ("application/json", Some(ResponseForm::Whole)),
            ("", Some(ResponseForm::Whole)),
            ("*/*", Some(ResponseForm::Whole)),
            ("application/*", Some(ResponseForm::Whole)),
            (table, Some(ResponseForm::Table(Meta::V1))),
            ("application/vnd.kubernetes.protobuf,application/json", Some(ResponseForm::Whole)),
            ("application/vnd.kubernetes.protobuf", Some(ResponseForm::Whole)),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None),
            ("application/json;as=Nothing;v=v1;g=meta.k8s.io", None),
            (
                "application/json;as=Nothing;v=v1;g=meta.k8s.io, application/json;q=0.5",
                Some(ResponseForm::Whole),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Some(ResponseForm::PartialList(Meta::V1)),
            ),
            (
                "application/json;q=0.1, application/json;as=Table;v=v1;g=meta.k8s.io",
                Some(ResponseForm::Table(Meta::V1)),
            ),
        ];
        for (header, expected) in cases {
            let found = form(&with(ACCEPT, header), false, true);
            let found = found.map_err(|status| status.code);
            assert_eq!(found, expected.ok_or(406), "{header}");
        }
        let protobuf = with(ACCEPT, "application/vnd.kubernetes.protobuf");
        assert!(form(&protobuf, true, false).is_err_and(|status| status.code == 406));
    }

    #[test]
    fn body_in_protobuf_is_decoded_or_rejected_in_upstream_format() {
        let config_map = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03\x0a\x01a";
        let decoded = read(config_map, Format::Protobuf).map(|parsed| parsed.value);
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        assert_eq!(decoded, Ok(expected));
        let unknown = b"k8s\0\x0a\x09\x0a\x02v9\x12\x03Pod";
        for (body, expected) in [
            (&unknown[..], "no kind \"Pod\" is registered for version \"v9\""),
            (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        ] {
            assert_eq!(read(body, Format::Protobuf).map(|parsed| parsed.value), Err(expected.to_owned()));
        }
    }

    #[test]
    fn json_is_preferred_when_protobuf_is_removed_from_accept() {
        let both = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
        let rest = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (header, preferred, expected) in
            [(both, true, rest), (protobuf, true, protobuf), ("application/json", false, "application/json")]
        {
            let mut headers = with(ACCEPT, header);
            assert_eq!(prefers_protobuf(&headers), preferred, "{header}");
            prefer_json(&mut headers);
            assert_eq!(headers[ACCEPT], expected);
        }
    }

    #[test]
    fn yaml_nesting_is_limited_like_json_including_aliases() {
        let nest =
            |depth: usize, inner: &str| ["[".repeat(depth), inner.to_owned(), "]".repeat(depth)].concat();
        let aliases = (1..60).fold(format!("a0: &a0 {}\n", nest(40, "1")), |text, at| {
            format!("{text}a{at}: &a{at} {}\n", nest(40, &format!("*a{}", at - 1)))
        });
        for text in [aliases, format!("a: {}", nest(128, "x")), format!("a: {}", nest(100_000, "x"))] {
            let result = read(text.as_bytes(), Format::Yaml);
            assert!(result.is_err(), "{result:?}");
        }
        let json = nest(100_000, "1");
        assert!(read(json.as_bytes(), Format::Json).is_err_and(|why| why == "exceeded max depth"));
        assert!(read(json.as_bytes(), Format::Yaml).is_err());
    }

    #[test]
    fn custom_kinds_have_no_strategic_merge() {
        let headers = with(CONTENT_TYPE, "application/strategic-merge-patch+json; charset=utf-8");
        assert_eq!(patch_kind(&headers, false), Ok(PatchKind::Strategic));
        assert_eq!(patch_kind(&headers, true).map_err(|status| status.code), Err(415));
    }

    #[test]
    fn undecodable_body_is_quoted_in_the_error() {
        assert_eq!(format(&with(CONTENT_TYPE, "text/plain")).map_err(|status| status.code), Err(415));
        let yaml = b"apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {a: \"1\"}\nspec:\n  grace: 30\n";
        let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "1"}}, "spec": {"grace": 30}});
        assert_eq!(object(yaml, Format::Yaml, "Pod"), Ok(Parsed { value: expected, duplicates: Vec::new() }));
        let refused = object(b"{\"a\"", Format::Json, "Pod").map_err(|status| (status.code, status.message));
        let Err((400, message)) = refused else { panic!("{refused:?}") };
        assert!(
            message.starts_with("the object provided is unrecognized (must be of type Pod): "),
            "{message}"
        );
        assert!(message.ends_with("({\"a\")"), "{message}");
    }
}
