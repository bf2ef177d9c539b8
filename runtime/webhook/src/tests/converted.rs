//! Tests of conversion between versions.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;
use crate::{Conversion, check_round_trip};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced)]
struct LampSpec {
    color: String,
}

mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v2", kind = "Lamp", namespaced)]
    pub(super) struct LampSpec {
        pub(super) colors: Vec<String>,
    }
}

mod v3 {
    use super::*;

    /// The color is upside down.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v3", kind = "Lamp", namespaced)]
    pub(super) struct LampSpec {
        pub(super) rolod: String,
    }
}

impl From<Lamp> for v2::Lamp {
    fn from(Lamp { metadata, spec }: Lamp) -> Self {
        Self { metadata, spec: v2::LampSpec { colors: vec![spec.color] } }
    }
}

impl TryFrom<v2::Lamp> for Lamp {
    type Error = &'static str;

    fn try_from(v2::Lamp { mut metadata, mut spec }: v2::Lamp) -> Result<Self, Self::Error> {
        assert!(spec.colors.iter().all(|color| color != "bug"), "a bug in the conversion");
        let color = spec.colors.pop().filter(|_| spec.colors.is_empty());
        // The name must not change.
        metadata.name = Some("changed".to_owned());
        metadata.labels.get_or_insert_default().insert("v".to_owned(), "1".to_owned());
        metadata.annotations = None;
        Ok(Self { metadata, spec: LampSpec { color: color.ok_or("v1 has exactly one color")? } })
    }
}

impl From<v3::Lamp> for v2::Lamp {
    fn from(v3::Lamp { metadata, spec }: v3::Lamp) -> Self {
        Self { metadata, spec: v2::LampSpec { colors: vec![spec.rolod.chars().rev().collect()] } }
    }
}

impl TryFrom<v2::Lamp> for v3::Lamp {
    type Error = &'static str;

    fn try_from(v2::Lamp { metadata, spec }: v2::Lamp) -> Result<Self, Self::Error> {
        let color = spec.colors.first().ok_or("no color")?;
        Ok(Self { metadata, spec: v3::LampSpec { rolod: color.chars().rev().collect() } })
    }
}

fn served() -> Served {
    Served::of(Webhooks::new().converts(Conversion::hub::<v2::Lamp>().spoke::<Lamp>().spoke::<v3::Lamp>()))
}

impl Served {
    async fn convert(&self, desired: &str, objects: &[Value]) -> (StatusCode, Value) {
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": { "uid": "u-1", "desiredAPIVersion": desired, "objects": objects },
        });
        let (status, answer) = self.post("/conversion/lamps.example.com", review.to_string()).await;
        (status, answer["response"].clone())
    }
}

fn lamp(version: &str, spec: &Value) -> Value {
    let metadata = json!({
        "name": "hall", "namespace": "home", "uid": "u", "managedFields": [{ "manager": "m" }],
        "annotations": { "a": "b" },
    });
    json!({ "apiVersion": format!("example.com/{version}"), "kind": "Lamp", "metadata": metadata, "spec": spec })
}

// parity: webhook-server-conversion-certificates
#[tokio::test(start_paused = true)]
async fn list_is_converted_through_hub_in_order() {
    let objects = [lamp("v1", &json!({ "color": "red" })), lamp("v3", &json!({ "rolod": "eulb" }))];
    let (_, response) = served().convert("example.com/v2", &objects).await;
    assert_eq!((&response["uid"], &response["result"]["status"]), (&json!("u-1"), &json!("Success")));
    assert_eq!(response["convertedObjects"][0], lamp("v2", &json!({ "colors": ["red"] })));
    assert_eq!(response["convertedObjects"][1], lamp("v2", &json!({ "colors": ["blue"] })));
    let (_, response) = served().convert("example.com/v3", &objects[..1]).await;
    assert_eq!(
        response["convertedObjects"],
        json!([lamp("v3", &json!({ "rolod": "der" }))]),
        "spoke to spoke"
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_except_labels_and_annotations_is_restored() {
    let (_, response) =
        served().convert("example.com/v1", &[lamp("v2", &json!({ "colors": ["red"] }))]).await;
    let metadata = json!({
        "name": "hall", "namespace": "home", "uid": "u", "managedFields": [{ "manager": "m" }],
        "labels": { "v": "1" },
    });
    assert_eq!(response["convertedObjects"][0]["metadata"], metadata);
}

#[tokio::test(start_paused = true)]
async fn list_with_unconvertible_object_is_not_converted_at_all() {
    let served = served();
    let good = lamp("v2", &json!({ "colors": ["red"] }));
    for (wrong, reason) in [
        (lamp("v2", &json!({ "colors": ["red", "blue"] })), "v1 has exactly one color"),
        (lamp("v2", &json!({ "colors": "red" })), "spec.colors: invalid type"),
        (lamp("v9", &json!({})), "the version example.com/v9 is unknown"),
    ] {
        let (status, response) = served.convert("example.com/v1", &[good.clone(), wrong]).await;
        assert_eq!((status, &response["convertedObjects"]), (StatusCode::OK, &json!([])));
        let message = response["result"]["message"].as_str().expect("a message");
        assert!(message.contains("Lamp \"hall\"") && message.contains(reason), "{message}");
        assert_eq!(response["result"]["status"], "Failure");
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_conversion_returns_500() {
    let served = served();
    let (status, _) = served.convert("example.com/v1", &[lamp("v2", &json!({ "colors": ["bug"] }))]).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(served.metrics.webhooks().webhook("lamps.example.com").panics.get(), 1);
}

#[test]
fn definition_contains_all_versions_and_stores_hub() {
    let conversion = Conversion::from(Conversion::hub::<v2::Lamp>().spoke::<Lamp>().spoke::<v3::Lamp>());
    let definition = conversion.definition().expect("merged");
    let mut versions: Vec<_> =
        definition.spec.versions.iter().map(|it| (it.name.as_str(), it.storage, it.served)).collect();
    versions.sort_unstable();
    assert_eq!(versions, [("v1", false, true), ("v2", true, true), ("v3", false, true)]);
    let twice = Conversion::from(Conversion::hub::<v2::Lamp>().spoke::<Lamp>().spoke::<Lamp>());
    assert!(twice.definition().expect_err("twice").to_string().contains("declared twice"));
}

#[test]
fn round_trip_check_reports_lost_fields() {
    let hub = |colors: &[&str]| {
        let colors = colors.iter().map(ToString::to_string).collect();
        v2::Lamp::new("hall", v2::LampSpec { colors })
    };
    assert_eq!(check_round_trip::<v2::Lamp, v3::Lamp>([hub(&["red"]), hub(&["blue"])]), Ok(()));
    let lost =
        check_round_trip::<v2::Lamp, v3::Lamp>([hub(&["red", "blue"])]).expect_err("one color is lost");
    assert!(lost.starts_with("case 0 changes:") && lost.contains("blue"), "{lost}");
    let failed = check_round_trip::<v2::Lamp, Lamp>([hub(&["red", "blue"])]).expect_err("two colors");
    assert!(failed.contains("to the spoke: v1 has exactly one color"), "{failed}");
}
