//! Random sequences on both servers. `WINDLASS_SEED` is the first seed, `WINDLASS_PLANS` the number of seeds.

use std::collections::BTreeSet;

use kube::Client;
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_contract::sequences::differences::{UsedExceptions, exceptions};
use windlass_contract::sequences::{Disagreement, Exchange, Step, compare, job_status_steps, send, steps};
use windlass_contract::{TestServer, control_plane};
use windlass_env::Env;

/// Number of seeds by default.
const SEEDS: u64 = 3;

/// Maximum number of printed disagreements.
const SHOWN: usize = 400;

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Returns the requests of a seed.
type Generator = fn(u64) -> Vec<Step>;

fn ours(seeds: &[u64], steps: Generator) -> Vec<Vec<Exchange>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let options = ApiServerOptions { service_account_admission: true, ..ApiServerOptions::default() };
        let api_server = ApiServer::new(&Env::virtual_time(1), options);
        let server = TestServer::new(Client::new(api_server, "default"));
        run(&server, seeds, steps).await
    })
}

fn real(seeds: &[u64], steps: Generator) -> Vec<Vec<Exchange>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let control_plane = control_plane::start_with_service_accounts().await.expect("a control plane");
        let server = TestServer::new(control_plane.client().await);
        run(&server, seeds, steps).await
    })
}

async fn run(server: &TestServer, seeds: &[u64], steps: Generator) -> Vec<Vec<Exchange>> {
    let mut all = Vec::new();
    for seed in seeds {
        all.push(send(server, *seed, &steps(*seed)).await.expect("answers"));
    }
    all
}

/// Sends the sequences to both servers, and returns the answers that differ for another reason than a known one.
fn compare_servers(seeds: &[u64], steps: Generator, used: &mut UsedExceptions) -> Vec<Disagreement> {
    let (ours, real) = (ours(seeds, steps), real(seeds, steps));
    let answers = seeds.iter().zip(ours.iter().zip(&real));
    answers.flat_map(|(seed, (ours, real))| compare(*seed, ours, real, used)).collect()
}

/// Returns the seeds of the run. By default they include the seed of each exception, so that every one is checked.
fn seeds() -> Vec<u64> {
    let is_default = ["WINDLASS_SEED", "WINDLASS_PLANS"].iter().all(|name| std::env::var_os(name).is_none());
    let (first, count) = (variable("WINDLASS_SEED", 1), variable("WINDLASS_PLANS", SEEDS));
    let of_exceptions = exceptions().map(|(_, seed)| seed).filter(|_| is_default);
    (first..first + count).chain(of_exceptions).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn both_servers_answer_sequences_equally() {
    let seeds = seeds();
    let mut used = UsedExceptions::default();
    let mut found = compare_servers(&seeds, steps, &mut used);
    found.extend(compare_servers(&seeds, job_status_steps, &mut used));
    let texts: Vec<_> = found.iter().take(SHOWN).map(ToString::to_string).collect();
    assert!(found.is_empty(), "{}\n{} answers differ", texts.join("\n"), found.len());
    let unused = used.unused(&seeds);
    assert!(unused.is_empty(), "unused exceptions:\n{}", unused.join("\n"));
}
