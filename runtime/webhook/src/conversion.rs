//! Conversion between the versions of a CRD.
//!
//! Guarantees:
//! - A list is converted completely or not at all.
//! - Metadata except labels and annotations is that of the original object.
//! - An object that cannot be converted is reported with its name, the field and the reason.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::core::crd::merge_crds;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use windlass_controller::{BoxError, FullObject, SetupError, Writable};
use windlass_object::{ResourceKind, json as encode};

use crate::review::decode;

/// A hub in transit.
type Hub = Box<dyn Any + Send>;

/// The conversions of one version.
struct Codec {
    to_hub: fn(&str) -> Result<Hub, String>,
    from_hub: fn(Hub) -> Result<Value, String>,
}

/// Conversion of the objects of one kind between its versions. Every version is converted through the hub, which is
/// also the version that the API server stores.
///
/// # Examples
/// ```
/// # use kube::CustomResource;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// # use windlass_webhook::{Conversion, Webhooks};
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
/// struct LampSpec {
///     color: String,
/// }
///
/// mod v2 {
/// #   use kube::CustomResource;
/// #   use schemars::JsonSchema;
/// #   use serde::{Deserialize, Serialize};
///     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
///     #[kube(group = "example.com", version = "v2", kind = "Lamp", namespaced)]
///     pub(super) struct LampSpec {
///         pub(super) colors: Vec<String>,
///     }
/// }
///
/// impl From<Lamp> for v2::Lamp {
///     fn from(Lamp { metadata, spec }: Lamp) -> Self {
///         Self { metadata, spec: v2::LampSpec { colors: vec![spec.color] } }
///     }
/// }
///
/// impl TryFrom<v2::Lamp> for Lamp {
///     type Error = &'static str;
///
///     fn try_from(v2::Lamp { metadata, mut spec }: v2::Lamp) -> Result<Self, Self::Error> {
///         let color = spec.colors.pop().filter(|_| spec.colors.is_empty());
///         let color = color.ok_or("v1 has exactly one color")?;
///         Ok(Self { metadata, spec: LampSpec { color } })
///     }
/// }
///
/// let webhooks = Webhooks::new().converts(Conversion::hub::<v2::Lamp>().spoke::<Lamp>());
/// # drop(webhooks);
/// ```
pub struct Conversion {
    kind: ResourceKind,
    definitions: Vec<CustomResourceDefinition>,
    codecs: BTreeMap<String, Codec>,
}

/// Adds the versions of a [`Conversion`].
pub struct ConversionBuilder<H> {
    conversion: Conversion,
    hub: PhantomData<fn() -> H>,
}

impl Conversion {
    /// Starts a conversion whose hub, and stored version, is `H`.
    pub fn hub<H: FullObject + Writable + CustomResourceExt>() -> ConversionBuilder<H> {
        let kind = ResourceKind::of::<H>();
        let codec = Codec {
            to_hub: |text| decoded::<H>(text).map(|hub| Box::new(hub) as Hub),
            from_hub: |hub| encode::value(&*unboxed::<H>(hub)?).map_err(|error| error.to_string()),
        };
        let codecs = BTreeMap::from([(kind.api_version(), codec)]);
        let conversion = Conversion { kind, definitions: vec![H::crd()], codecs };
        ConversionBuilder { conversion, hub: PhantomData }
    }

    /// Returns the name of the CRD: `sites.example.com`.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.kind.plural, self.kind.group)
    }

    /// Returns the path on the server.
    pub(crate) fn path(&self) -> String {
        format!("/conversion/{}", self.name())
    }

    /// Returns the CRD with all versions, without its conversion.
    pub(crate) fn definition(&self) -> Result<CustomResourceDefinition, SetupError> {
        if self.codecs.len() != self.definitions.len() {
            let fault = format!("cannot convert {}: a version is declared twice", self.name());
            return Err(SetupError::invalid(fault));
        }
        merge_crds(self.definitions.clone(), &self.kind.version).map_err(|error| {
            let fault =
                format!("cannot convert {}: its versions do not belong together: {error}", self.name());
            SetupError::invalid(fault)
        })
    }

    /// Converts the objects of a ConversionReview and returns the response, with whether it contains the objects.
    ///
    /// # Errors
    /// The reason why the body is not a ConversionReview.
    pub(crate) fn respond(&self, body: &[u8]) -> Result<(Value, bool), String> {
        let Envelope { api_version, kind, request } =
            serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if (api_version.as_str(), kind.as_str()) != ("apiextensions.k8s.io/v1", "ConversionReview") {
            return Err(format!(
                "{kind} of {api_version} is not a ConversionReview of apiextensions.k8s.io/v1"
            ));
        }
        let converted: Result<Vec<Value>, String> =
            request.objects.iter().map(|object| self.convert(object.get(), &request.desired)).collect();
        let is_complete = converted.is_ok();
        let response = match converted {
            Ok(objects) => json!({
                "uid": request.uid, "convertedObjects": objects, "result": { "status": "Success" },
            }),
            Err(message) => json!({
                "uid": request.uid, "convertedObjects": [],
                "result": { "status": "Failure", "message": message, "reason": "Invalid", "code": 422 },
            }),
        };
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response,
        });
        Ok((review, is_complete))
    }

    fn convert(&self, text: &str, desired: &str) -> Result<Value, String> {
        let original: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let version = original.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        if version == desired {
            return Ok(Value::Object(original));
        }
        let failed = |reason: String| {
            let name = original.get("metadata").and_then(|it| it.get("name")).and_then(Value::as_str);
            let (kind, name) = (&self.kind.kind, name.unwrap_or_default());
            format!("cannot convert {kind} {name:?} from {version} to {desired}: {reason}")
        };
        let codec = |version: &str| {
            self.codecs.get(version).ok_or_else(|| failed(format!("the version {version} is unknown")))
        };
        let (from, to) = (codec(version)?, codec(desired)?);
        let converted = (from.to_hub)(text).and_then(to.from_hub).map_err(&failed)?;
        let Value::Object(converted) = converted else {
            return Err(failed("it does not encode as an object".to_owned()));
        };
        Ok(Value::Object(completed(converted, &original, desired)))
    }
}

impl<H: FullObject + Writable + CustomResourceExt> ConversionBuilder<H> {
    /// Adds a version, which is converted from and to the hub.
    #[must_use]
    pub fn spoke<S>(mut self) -> Self
    where
        S: FullObject + Writable + CustomResourceExt + TryFrom<H, Error: Into<BoxError>>,
        H: TryFrom<S, Error: Into<BoxError>>,
    {
        let codec = Codec {
            to_hub: |text| {
                let hub = H::try_from(decoded::<S>(text)?).map_err(line)?;
                Ok(Box::new(hub))
            },
            from_hub: |hub| {
                let spoke = S::try_from(*unboxed::<H>(hub)?).map_err(line)?;
                encode::value(&spoke).map_err(|error| error.to_string())
            },
        };
        self.conversion.codecs.insert(ResourceKind::of::<S>().api_version(), codec);
        self.conversion.definitions.push(S::crd());
        self
    }
}

impl<H> From<ConversionBuilder<H>> for Conversion {
    fn from(builder: ConversionBuilder<H>) -> Self {
        builder.conversion
    }
}

/// The envelope of a ConversionReview.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    objects: Vec<Box<RawValue>>,
}

fn decoded<K: FullObject>(text: &str) -> Result<K, String> {
    decode(text).map_err(|denial| denial.message())
}

fn unboxed<H: 'static>(hub: Hub) -> Result<Box<H>, String> {
    hub.downcast().map_err(|_| "the hub has another type".to_owned())
}

fn line(error: impl Into<BoxError>) -> String {
    windlass_client::one_line(error.into().as_ref())
}

/// Returns the converted object with version, kind and metadata.
fn completed(
    mut converted: Map<String, Value>,
    original: &Map<String, Value>,
    version: &str,
) -> Map<String, Value> {
    let changed = converted.remove("metadata").unwrap_or_default();
    let mut metadata = original.get("metadata").cloned().unwrap_or_else(|| json!({}));
    if let Value::Object(metadata) = &mut metadata {
        for field in ["labels", "annotations"] {
            match changed.get(field).filter(|value| !value.is_null()) {
                Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
                None => drop(metadata.remove(field)),
            }
        }
    }
    converted.insert("apiVersion".to_owned(), version.into());
    converted.insert("kind".to_owned(), original.get("kind").cloned().unwrap_or_default());
    converted.insert("metadata".to_owned(), metadata);
    converted
}

/// Checks that each case survives the way from the hub to the spoke and back. For tests.
///
/// # Errors
/// The first case that does not, with both documents.
pub fn check_round_trip<H, S>(cases: impl IntoIterator<Item = H>) -> Result<(), String>
where
    H: Writable + TryFrom<S, Error: Into<BoxError>>,
    S: Writable + TryFrom<H, Error: Into<BoxError>>,
{
    for (index, case) in cases.into_iter().enumerate() {
        let document = |hub: &H| encode::value(hub).map_err(|error| error.to_string());
        let before = document(&case)?;
        let spoke =
            S::try_from(case).map_err(|error| format!("case {index}, to the spoke: {}", line(error)))?;
        let back =
            H::try_from(spoke).map_err(|error| format!("case {index}, back to the hub: {}", line(error)))?;
        let after = document(&back)?;
        if before != after {
            return Err(format!("case {index} changes:\nbefore: {before}\nafter:  {after}"));
        }
    }
    Ok(())
}

impl std::fmt::Debug for Conversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let versions: Vec<_> = self.codecs.keys().collect();
        f.debug_struct("Conversion").field("kind", &self.kind).field("versions", &versions).finish()
    }
}

impl<H> std::fmt::Debug for ConversionBuilder<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConversionBuilder").field("conversion", &self.conversion).finish()
    }
}
