//! The metadata of a view.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Error, Interner, Shape, Value, ViewField};
use crate::{Metadata, ObjectHeader, ObjectKey, Owner, ResourceVersion, StringMap, Uid};

/// The fields of the metadata that a view has.
const FIELDS: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
    "finalizers",
];

impl ViewField for Metadata {
    const SHAPE: Shape = Shape::Any;

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

    fn read(value: Value<'_>, interner: &mut Interner) -> Result<Self, Error> {
        let mut metadata = Self::absent();
        let (mut namespace, mut name) = (None, Cow::Borrowed(""));
        value.each_field(&|field| FIELDS.contains(&field), &mut |field, value| {
            match field {
                "name" => name = value.text()?,
                "namespace" => namespace = Some(value.text()?),
                "uid" => metadata.header.uid = Some(Uid::from(&*value.text()?)),
                "resourceVersion" => {
                    metadata.header.version = ResourceVersion::from_response(&value.text()?);
                }
                "generation" => metadata.generation = Some(value.integer()?),
                "creationTimestamp" => metadata.creation_timestamp = Some(value.time()?),
                "deletionTimestamp" => metadata.deletion_timestamp = Some(value.time()?),
                "labels" => metadata.labels = StringMap::read(value, interner)?,
                "ownerReferences" => {
                    let owners = elements(value, |owner| owner_of(owner, interner))?;
                    metadata.owners = interner.owners(owners);
                }
                "finalizers" => {
                    let finalizers = elements(value, |finalizer| Arc::read(finalizer, interner))?;
                    metadata.finalizers = interner.list(finalizers);
                }
                _ => {}
            }
            Ok(())
        })?;
        metadata.header.key = ObjectKey::new(namespace.as_deref(), &name);
        Ok(metadata)
    }
}

/// Reads a list without null.
fn elements<'a, T>(
    list: Value<'a>,
    mut read: impl FnMut(Value<'a>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let mut elements = Vec::new();
    list.each_element(&mut |element| {
        let element =
            element.ok_or_else(|| Error::Json("a list of the metadata contains null".to_owned()))?;
        elements.push(read(element)?);
        Ok(())
    })?;
    Ok(elements)
}

fn owner_of(value: Value<'_>, interner: &mut Interner) -> Result<Owner, Error> {
    let empty = interner.text("");
    let mut owner = Owner {
        api_version: Arc::clone(&empty),
        kind: Arc::clone(&empty),
        name: empty,
        uid: Uid::from(""),
        controller: false,
        block_owner_deletion: false,
    };
    value.each_field(&|_| true, &mut |field, value| {
        match field {
            "apiVersion" => owner.api_version = interner.text(&value.text()?),
            "kind" => owner.kind = interner.text(&value.text()?),
            "name" => owner.name = interner.text(&value.text()?),
            "uid" => owner.uid = Uid::from(&*value.text()?),
            "controller" => owner.controller = value.boolean()?,
            "blockOwnerDeletion" => owner.block_owner_deletion = value.boolean()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(owner)
}
