//! The API server accepts every render, and every manifest of the documents, with strict validation and without a
//! warning.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use windlass_deploy::Helm;

use crate::cases::{CASES, NAMESPACE, name_of, objects};
use crate::cluster::{apply, plane};

#[tokio::test]
async fn api_server_accepts_every_render_without_warning() -> Result<()> {
    let plane = plane().await?;
    let helm = Helm::new(Some(plane)).await?;
    for case in CASES {
        let render = helm.release("template", ("checked", case.chart, NAMESPACE), case.values, &[]).await?;
        let objects = objects(&render)?;
        // Another test installs the CRD at the same time, with another field manager.
        let answer = apply(plane, &objects, &["--dry-run=server", "--force-conflicts"]).await;
        let answer = answer.with_context(|| format!("{}: {render}", case.name))?;
        let applied = answer.matches("serverside-applied").count();
        let names: Vec<_> = objects.iter().map(name_of).collect();
        ensure!(applied == objects.len(), "{}: {applied} of {names:?}: {answer}", case.name);
    }
    Ok(())
}

/// The group of the configuration file, which is not an object of an API server.
const CONFIGURATION: &str = "config.windlass.dev/";

#[tokio::test]
async fn api_server_accepts_every_manifest_of_documents() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let page = std::fs::read_to_string(&path)?;
            for block in yaml_blocks(&page) {
                manifests.extend(objects(&block).with_context(|| format!("{}: {block}", path.display()))?);
            }
        }
    }
    manifests.retain(|object| object["apiVersion"].as_str().is_some_and(|it| !it.starts_with(CONFIGURATION)));
    ensure!(manifests.len() >= 4, "the documents have few manifests: {manifests:?}");
    // Another test installs the role of metrics readers at the same time, with another field manager.
    let answer = apply(plane().await?, &manifests, &["--dry-run=server", "--force-conflicts"]).await?;
    let names: Vec<_> = manifests.iter().map(|it: &Value| name_of(it)).collect();
    ensure!(answer.matches("serverside-applied").count() == manifests.len(), "{names:?}: {answer}");
    Ok(())
}

/// Returns the blocks of a page that contain whole objects.
fn yaml_blocks(page: &str) -> impl Iterator<Item = String> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.starts_with("apiVersion:")).map(str::to_owned)
}
