//! The metadata of a view.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::Error;
use serde_json::value::RawValue;

use super::fields::Text;
use super::{Interner, Path, Shape, Step, ViewField, ViewPaths, read};
use crate::{Metadata, ObjectHeader, ObjectKey, Owner, ResourceVersion, StringMap, Uid};

/// The fields of the metadata that a view has.
const FIELDS: &[&[Step]] = &[
    &[Step::Field("name")],
    &[Step::Field("namespace")],
    &[Step::Field("uid")],
    &[Step::Field("resourceVersion")],
    &[Step::Field("generation")],
    &[Step::Field("creationTimestamp")],
    &[Step::Field("deletionTimestamp")],
    &[Step::Field("labels")],
    &[Step::Field("ownerReferences")],
    &[Step::Field("finalizers")],
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    resource_version: Option<Text<'a>>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<&'a RawValue>,
    owner_references: Option<Vec<RawOwner<'a>>>,
    finalizers: Option<Vec<Text<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawOwner<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    name: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

impl ViewField for Metadata {
    const SHAPE: Shape = Shape::Any;

    fn selection() -> Option<&'static ViewPaths> {
        static SELECTION: OnceLock<ViewPaths> = OnceLock::new();
        Some(SELECTION.get_or_init(|| {
            let path = |steps: &&'static [Step]| Path { steps, inside: || None };
            ViewPaths::new(&FIELDS.iter().map(path).collect::<Vec<_>>())
        }))
    }

    fn absent() -> Self {
        Self {
            header: ObjectHeader { key: ObjectKey::cluster(""), uid: None, version: None },
            labels: StringMap::default(),
            owners: Arc::default(),
            finalizers: Arc::default(),
            generation: None,
            creation_timestamp: None,
            deletion_timestamp: None,
        }
    }

    fn read(value: &RawValue, interner: &mut Interner) -> Result<Self, Error> {
        let raw: RawMetadata<'_> = serde_json::from_str(value.get())?;
        let owners = raw.owner_references.into_iter().flatten().map(|owner| owner_of(owner, interner));
        let owners = owners.collect();
        let finalizers = raw.finalizers.into_iter().flatten().map(|Text(text)| interner.text(&text));
        let finalizers = finalizers.collect();
        Ok(Self {
            header: ObjectHeader {
                key: ObjectKey::new(
                    text(raw.namespace.as_ref()),
                    text(raw.name.as_ref()).unwrap_or_default(),
                ),
                uid: text(raw.uid.as_ref()).map(Uid::from),
                version: text(raw.resource_version.as_ref()).and_then(ResourceVersion::from_response),
            },
            labels: raw.labels.map_or(Ok(StringMap::default()), |labels| read(labels, interner))?,
            owners: interner.owners(owners),
            finalizers: interner.list(finalizers),
            generation: raw.generation,
            creation_timestamp: raw.creation_timestamp,
            deletion_timestamp: raw.deletion_timestamp,
        })
    }
}

fn text<'a>(text: Option<&'a Text<'_>>) -> Option<&'a str> {
    text.map(|Text(text)| &**text)
}

fn owner_of(raw: RawOwner<'_>, interner: &mut Interner) -> Owner {
    let mut shared =
        |text: Option<Text<'_>>| interner.text(&text.map_or(Cow::Borrowed(""), |Text(text)| text));
    Owner {
        api_version: shared(raw.api_version),
        kind: shared(raw.kind),
        name: shared(raw.name),
        uid: shared(raw.uid).into(),
        controller: raw.controller.unwrap_or_default(),
        block_owner_deletion: raw.block_owner_deletion.unwrap_or_default(),
    }
}
