//! Coordinated leader election, on a plane that has it: the API server chooses the oldest candidate, and moves the lease
//! when an older one comes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use windlass_black_box::{stage::on_plane, wait::eventually_within};
use windlass_client::RawClient;
use windlass_election::{CoordinatedConfig, ElectionConfig, ElectionError, Elector, LeaderFence, LossReason};
use windlass_env::Env;
use windlass_harness::{Plane, PlaneOptions};
use windlass_metrics::Metrics;

/// An election takes the coordinator some seconds; one that was lost, a lease duration more.
const PATIENCE: Duration = Duration::from_secs(60);

async fn elector(plane: &Plane, identity: &str, version: &str) -> Result<Elector> {
    let (env, client) = (Env::system(identity), plane.client().await);
    let config = ElectionConfig {
        lease_name: "coordinated".to_owned(),
        coordinated: Some(CoordinatedConfig::new(version)),
        ..ElectionConfig::new(identity)
    };
    let raw = RawClient::new(client.clone(), env.clone());
    let fence = LeaderFence::new(env.clone());
    Ok(Elector::new(env, config, client, raw, fence, &Metrics::new())?)
}

fn quiet() -> PlaneOptions {
    PlaneOptions::default().nodes(0).scheduler(false).upstream_controllers(Vec::<String>::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_elects_the_oldest_candidate_and_moves_the_lease_when_an_older_one_comes() -> Result<()>
{
    let options = quiet()
        .api_server_arg("--feature-gates=CoordinatedLeaderElection=true")
        .api_server_arg("--runtime-config=coordination.k8s.io/v1beta1=true");
    on_plane(options, async |plane, _| {
        let mut newer = elector(plane, "newer", "1.36.0").await?;
        tokio::time::timeout(PATIENCE, newer.acquire()).await.context("nobody was elected")??;
        let leases: Api<Lease> = Api::namespaced(plane.client().await, "kube-system");
        let spec = leases.get("coordinated").await?.spec.context("a record")?;
        ensure!(spec.strategy.as_deref() == Some("OldestEmulationVersion"), "{spec:?}");

        let mut older = elector(plane, "older", "1.35.0").await?;
        let lost = tokio::select! {
            biased;
            lost = newer.hold() => lost,
            elected = older.acquire() => anyhow::bail!("two lead: {elected:?}"),
            () = tokio::time::sleep(PATIENCE) => anyhow::bail!("the lease was not moved"),
        };
        ensure!(lost.reason == LossReason::Preferred { preferred: "older".to_owned() }, "{lost}");
        newer.release(None).await?;
        tokio::time::timeout(PATIENCE, older.acquire()).await.context("the older one was not elected")??;
        let look = || async {
            anyhow::Ok(leases.get("coordinated").await?.spec.and_then(|spec| spec.holder_identity))
        };
        eventually_within(PATIENCE, "the lease names the older", look, |holder| {
            holder.as_deref() == Some("older")
        })
        .await?;
        older.release(None).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_knows_no_candidates_is_one_clear_error() -> Result<()> {
    on_plane(quiet(), async |plane, _| {
        let mut elector = elector(plane, "alone", "1.36.0").await?;
        let refused = tokio::time::timeout(PATIENCE, elector.acquire()).await.context("it waits")?;
        let Err(refused @ ElectionError::NotCoordinated { .. }) = refused else {
            anyhow::bail!("{refused:?}")
        };
        ensure!(refused.to_string().contains("CoordinatedLeaderElection"), "{refused}");
        Ok(())
    })
    .await
}
