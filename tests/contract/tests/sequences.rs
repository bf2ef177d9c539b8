//! Random sequences on both servers. `WINDLASS_SEED` is the first seed, `WINDLASS_PLANS` the number of seeds.

use kube::Client;
use windlass_api_server::{ApiServer, ApiServerOptions};
use windlass_contract::sequences::differences::ANSWERS;
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
        let api_server = ApiServer::new(&Env::virtual_time(1), ApiServerOptions::default());
        let server = TestServer::new(Client::new(api_server, "default"));
        run(&server, seeds, steps).await
    })
}

fn real(seeds: &[u64], steps: Generator) -> Vec<Vec<Exchange>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let control_plane = control_plane::start_for_sequences().await.expect("a control plane");
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

/// Sends the sequences to both servers, and panics if an answer differs for another reason than a known one.
fn compare_servers(steps: Generator) {
    let (first, count) = (variable("WINDLASS_SEED", 1), variable("WINDLASS_PLANS", SEEDS));
    let seeds: Vec<u64> = (first..first + count).collect();
    let (ours, real) = (ours(&seeds, steps), real(&seeds, steps));
    let found: Vec<Disagreement> = seeds
        .iter()
        .zip(ours.iter().zip(&real))
        .flat_map(|(seed, (ours, real))| compare(*seed, ours, real))
        .filter(|found| !ANSWERS.iter().any(|known| (known.explains)(found)))
        .collect();
    let requests: usize = real.iter().map(Vec::len).sum();
    let texts: Vec<_> = found.iter().take(SHOWN).map(ToString::to_string).collect();
    assert!(found.is_empty(), "{}\n{} of {requests} answers differ", texts.join("\n"), found.len());
}

#[test]
fn both_servers_answer_sequences_equally() {
    compare_servers(steps);
}

#[test]
fn both_servers_validate_job_statuses_equally() {
    compare_servers(job_status_steps);
}
