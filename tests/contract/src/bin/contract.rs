//! Runs behaviors against an existing server: `contract KUBECONFIG [WORD]...` runs the behaviors whose group or name
//! contains one of the words. `contract hold` starts a suitable control plane, prints its kubeconfig and waits. The
//! group `shards` needs a server with the feature gate `ShardedListAndWatch`, which `contract hold shards` starts.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use windlass_contract::{Behavior, TestServer, behaviors, control_plane, run, webhooks::Webhooks};

/// Number of concurrent behaviors: enough to hide the waiting.
const AT_ONCE: usize = 12;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (first, words) =
        arguments.split_first().context("usage: contract hold | contract KUBECONFIG [WORD]...")?;
    if first == "hold" {
        let with_shards = words.iter().any(|word| word == behaviors::SHARDS);
        let control_plane = if with_shards {
            control_plane::start_with_shards().await?
        } else {
            control_plane::start().await?
        };
        println!("{}", control_plane.kubeconfig_path().display());
        std::future::pending::<()>().await;
    }
    let kubeconfig = Kubeconfig::read_from(PathBuf::from(first))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    let (webhooks, _listener) = Webhooks::listen().await?;
    let server = TestServer::new(Client::try_from(config)?).with_webhooks(webhooks);
    let mut failed = 0;
    for (group, table) in behaviors::ALL {
        let wanted = |it: &&Behavior| {
            words.is_empty() || words.iter().any(|word| group == word || it.name.contains(word))
        };
        let chosen: Vec<Behavior> = table.iter().filter(wanted).copied().collect();
        let begun = std::time::Instant::now();
        for (name, outcome) in run(&server, &chosen, AT_ONCE).await {
            if let Err(error) = outcome {
                failed += 1;
                println!("{group}::{name}: {error:#}\n");
            }
        }
        println!("{group}: {} in {:?}", chosen.len(), begun.elapsed());
    }
    println!("{failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
