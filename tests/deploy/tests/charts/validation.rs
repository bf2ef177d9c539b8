//! The API server accepts every render, with strict validation and without a warning.

use anyhow::{Context as _, Result, ensure};
use windlass_deploy::Helm;

use crate::cases::{CASES, NAMESPACE, name_of, objects};
use crate::cluster::{CONFIGURATION_OF_WEBHOOKS, apply, plane};

#[tokio::test]
async fn api_server_accepts_every_render_without_warning() -> Result<()> {
    let plane = plane().await?;
    let helm = Helm::new(Some(plane)).await?;
    let _only_user = CONFIGURATION_OF_WEBHOOKS.lock().await;
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
