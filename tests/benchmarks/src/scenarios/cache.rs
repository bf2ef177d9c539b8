//! A cache of all Pods of a cluster: memory per Pod, and the costs of the sync.
//!
//! Each contender is a program in its own process that lists and watches Pods from a [`ReplayServer`]. In each round it
//! runs twice: against a server without Pods, which shows the memory of the program itself, and against a server with
//! all Pods.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::peer::{build_crate, build_go_program, encode_as_protobuf};
use crate::pods::{Shape, generate};
use crate::process::{CacheProcess, Memory, Sync};
use crate::replay::{RecordedPod, ReplayServer};
use crate::results::{Contender, Goal, Metric, Sample, Unit};
use crate::scenarios::{Context, Record, own_program};

/// A measured program and its arguments after the kubeconfig.
struct Program {
    contender: Contender,
    executable: Executable,
    arguments: &'static [&'static str],
    fields: Fields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executable {
    Windlass,
    ClientGo,
    KubeRs,
    Floor,
}

/// The fields that a cache keeps. `managedFields` are always dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fields {
    All,
    /// Metadata, node, phase, addresses and conditions.
    Slim,
    Metadata,
}

const fn program(
    contender: Contender,
    executable: Executable,
    arguments: &'static [&'static str],
    fields: Fields,
) -> Program {
    Program { contender, executable, arguments, fields }
}

use Executable::{ClientGo, Floor, KubeRs, Windlass};

/// All programs. A representation of Windlass needs one line here and one in `src/bin/cache_windlass.rs`.
const PROGRAMS: &[Program] = &[
    program(Contender::windlass("windlass typed"), Windlass, &["typed"], Fields::All),
    program(Contender::windlass("windlass decoded"), Windlass, &["decoded"], Fields::All),
    program(Contender::peer("client-go protobuf"), ClientGo, &["protobuf", "full"], Fields::All),
    program(Contender::peer("client-go JSON"), ClientGo, &["json", "full"], Fields::All),
    program(Contender::peer("kube-rs streamed"), KubeRs, &["full"], Fields::All),
    program(Contender::peer("kube-rs paged"), KubeRs, &["full-paged"], Fields::All),
    program(Contender::floor("read protobuf"), Floor, &["protobuf"], Fields::All),
    program(Contender::floor("read JSON"), Floor, &["json"], Fields::All),
    program(Contender::windlass("windlass view"), Windlass, &["slim"], Fields::Slim),
    program(Contender::peer("client-go protobuf"), ClientGo, &["protobuf", "slim"], Fields::Slim),
    program(Contender::peer("kube-rs streamed"), KubeRs, &["slim"], Fields::Slim),
    program(Contender::windlass("windlass metadata"), Windlass, &["metadata"], Fields::Metadata),
    program(Contender::peer("client-go protobuf"), ClientGo, &["protobuf", "metadata"], Fields::Metadata),
    program(Contender::peer("kube-rs streamed"), KubeRs, &["metadata"], Fields::Metadata),
    program(Contender::floor("read JSON"), Floor, &["metadata"], Fields::Metadata),
];

impl Fields {
    const fn name(self) -> &'static str {
        match self {
            Fields::All => "all fields",
            Fields::Slim => "slim",
            Fields::Metadata => "metadata",
        }
    }

    const fn memory_per_pod(self) -> Metric {
        let goal = match self {
            Fields::All => Goal::TimesBetter(10.0),
            Fields::Slim | Fields::Metadata => Goal::AtMost(300.0),
        };
        Metric::with_goal("memory per Pod", Unit::Bytes, goal)
    }
}

const PEAK: Metric = Metric::with_goal("peak memory / settled memory", Unit::Number, Goal::AtMost(1.05));
const PROCESSOR: Metric = Metric::with_goal("CPU time until synced", Unit::Seconds, Goal::OfFloor(1.25));
const ELAPSED: Metric = Metric::with_goal("time until synced", Unit::Seconds, Goal::OfFloor(1.03));
const BASE: Metric = Metric::new("memory without Pods", Unit::Bytes);

/// The servers and programs of one measurement.
struct Bench {
    executables: [(Executable, PathBuf); 4],
    empty: ReplayServer,
    full: ReplayServer,
    count: usize,
    shape: Shape,
}

/// Measures all programs for each number of Pods.
///
/// # Errors
/// If a program cannot be built, fails, or does not cache every Pod.
pub(super) fn run(context: &Context, record: Record<'_>) -> Result<()> {
    let executables = [
        (Windlass, own_program("cache_windlass")?),
        (Floor, own_program("cache_floor")?),
        (ClientGo, build_go_program("client-go", "cache")?),
        (KubeRs, build_crate("kube-rs", "peer-kube-rs")?),
    ];
    let encoder = build_go_program("client-go", "encode")?;
    for count in &context.pods {
        for shape in [Shape::TenPerOwner, Shape::OnePerOwner] {
            let bench = Bench {
                executables: executables.clone(),
                empty: ReplayServer::start(Vec::new())?,
                full: ReplayServer::start(recorded_pods(*count, shape, &encoder)?)?,
                count: *count,
                shape,
            };
            for _ in 0..context.rounds {
                bench.round(record)?;
            }
        }
    }
    Ok(())
}

fn recorded_pods(count: usize, shape: Shape, encoder: &Path) -> Result<Vec<RecordedPod>> {
    let pods = generate(count, shape);
    let encoded = encode_as_protobuf(encoder, &pods)?;
    ensure!(encoded.len() == pods.len(), "{} of {} Pods were encoded", encoded.len(), pods.len());
    Ok(pods.into_iter().zip(encoded).map(|(json, protobuf)| RecordedPod { json, protobuf }).collect())
}

impl Bench {
    fn round(&self, record: Record<'_>) -> Result<()> {
        for program in PROGRAMS {
            let name = &program.contender.name;
            self.measure(program, record).with_context(|| {
                format!("{name}: {}, {} objects", self.workload(program.fields), self.count)
            })?;
        }
        Ok(())
    }

    fn workload(&self, fields: Fields) -> String {
        format!("cache of Pods, {}, {}", self.shape.name(), fields.name())
    }

    fn measure(&self, program: &Program, record: Record<'_>) -> Result<()> {
        let (_, base) = self.run(program, &self.empty)?;
        let (sync, memory) = self.run(program, &self.full)?;
        let mut add = |fields: Fields, metric: Metric, value: f64| {
            let (workload, contender) = (self.workload(fields), program.contender.clone());
            record(Sample { workload, size: Some(self.count), metric, contender, value })
        };
        if program.executable == Floor {
            let of_bytes = if program.fields == Fields::All {
                &[Fields::All, Fields::Slim][..]
            } else {
                &[program.fields]
            };
            for fields in of_bytes {
                add(*fields, PROCESSOR, sync.processor_seconds)?;
                add(*fields, ELAPSED, sync.elapsed.as_secs_f64())?;
            }
            return Ok(());
        }
        ensure!(sync.count == self.count, "{} of {} Pods are in the cache", sync.count, self.count);
        let per_pod = (memory.resident - base.resident) / self.count as f64;
        add(program.fields, program.fields.memory_per_pod(), per_pod)?;
        add(program.fields, PEAK, memory.peak / memory.resident)?;
        add(program.fields, PROCESSOR, sync.processor_seconds)?;
        add(program.fields, ELAPSED, sync.elapsed.as_secs_f64())?;
        add(program.fields, BASE, base.resident)
    }

    fn run(&self, program: &Program, server: &ReplayServer) -> Result<(Sync, Memory)> {
        let executable = self.executables.iter().find(|(executable, _)| *executable == program.executable);
        let (_, path) = executable.context("the program is not built")?;
        let mut command = Command::new(path);
        command.arg(server.kubeconfig()).args(program.arguments);
        let process = CacheProcess::start(&mut command)?;
        let sync = process.synced()?;
        let memory = process.settled_memory()?;
        process.stop()?;
        Ok((sync, memory))
    }
}
