//! What was measured, as ratios with their targets.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::setup::Way;

/// A kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// Microseconds a call of so many bytes with one open, the median of one turn.
    Median(usize),
    /// The same, 99 of 100 calls being faster.
    High(usize),
    /// Calls a second of one host with 32 open.
    Many,
    /// Calls a second of eight hosts with four open each; for one host alone, with 32 open.
    Shared,
    /// MiB a second of answers of so many bytes, one open.
    Large(usize),
    /// The same from a server that writes the id behind the result.
    LargeIdLast(usize),
    /// Microseconds from the start of a connection to its first list of tools.
    FirstList,
    /// KiB of the daemon with 20 idle servers.
    DaemonMemory,
    /// KiB in the daemon for each of 1,000 attachments.
    AttachmentMemory,
    /// KiB of the only shim.
    ShimMemory,
    /// KiB of one of 20 shims.
    ShimMemoryShared,
    /// Voluntary context switches of the daemon with 20 idle servers and 20 idle hosts.
    IdleSwitches,
    /// Allocations that a call costs in everything that decides.
    Allocations,
}

/// What a ratio or number should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    None,
}

impl Target {
    pub(crate) fn is_met(self, number: f64) -> bool {
        match self {
            Self::AtMost(limit) => number <= limit,
            Self::AtLeast(limit) => number >= limit,
            Self::None => true,
        }
    }

    pub(crate) fn text(self, decimals: usize) -> String {
        match self {
            Self::AtMost(limit) => format!("at most {limit:.decimals$}"),
            Self::AtLeast(limit) => format!("at least {limit:.decimals$}"),
            Self::None => "–".to_owned(),
        }
    }
}

impl Figure {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Median(bytes) => format!("µs a call of {}, one open, median", size(bytes)),
            Self::High(bytes) => format!("µs a call of {}, one open, p99", size(bytes)),
            Self::Many => "calls a second, 32 open".to_owned(),
            Self::Shared => "calls a second, 8 hosts × 4 open (direct: 1 × 32)".to_owned(),
            Self::Large(bytes) => format!("MiB a second, answers of {}", size(bytes)),
            Self::LargeIdLast(bytes) => {
                format!("MiB a second, answers of {}, id last", size(bytes))
            }
            Self::FirstList => "µs from connect to the first `tools/list`".to_owned(),
            Self::DaemonMemory => "daemon with 20 idle servers, KiB (PSS)".to_owned(),
            Self::AttachmentMemory => "an attachment in the daemon, KiB".to_owned(),
            Self::ShimMemory => "a shim alone, KiB (PSS)".to_owned(),
            Self::ShimMemoryShared => "a shim as one of 20, KiB (PSS)".to_owned(),
            Self::IdleSwitches => "context switches of the idle daemon".to_owned(),
            Self::Allocations => "allocations a call, cores only".to_owned(),
        }
    }

    pub(crate) const fn target(self) -> Target {
        match self {
            Self::Median(_) => Target::AtMost(0.6),
            Self::High(_) => Target::AtMost(1.0),
            Self::Many => Target::AtLeast(1.0),
            Self::Shared => Target::AtLeast(0.8),
            Self::Large(_) | Self::LargeIdLast(_) => Target::AtLeast(0.7),
            Self::FirstList => Target::AtMost(1.5),
            Self::DaemonMemory => Target::AtMost(8192.0),
            Self::AttachmentMemory => Target::AtMost(32.0),
            Self::ShimMemory => Target::AtMost(1200.0),
            Self::ShimMemoryShared => Target::AtMost(500.0),
            Self::IdleSwitches => Target::AtMost(0.0),
            Self::Allocations => Target::None,
        }
    }

    /// What the number that has a target is, and how it comes from what was measured three ways.
    fn outcome(self, [direct, relay, mcpd]: [f64; 3]) -> (&'static str, f64) {
        match self {
            Self::Median(_) | Self::High(_) => {
                ("of what the relay adds", (mcpd - direct) / (relay - direct))
            }
            Self::Many => ("of the relay", mcpd / relay),
            Self::Shared | Self::Large(_) | Self::LargeIdLast(_) | Self::FirstList => {
                ("of direct", mcpd / direct)
            }
            _ => ("", mcpd),
        }
    }

    /// Whether its outcome is a ratio of what was measured in the same run.
    pub(crate) const fn is_ratio(self) -> bool {
        !matches!(
            self,
            Self::DaemonMemory
                | Self::AttachmentMemory
                | Self::ShimMemory
                | Self::ShimMemoryShared
                | Self::IdleSwitches
                | Self::Allocations
        )
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// The outcome of one figure.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) figure: Figure,
    /// What was measured directly, through the relay and through mcpd, as far as it was.
    pub(crate) measured: [f64; 3],
    /// Of what the outcome is a ratio.
    pub(crate) unit: &'static str,
    pub(crate) outcome: f64,
}

impl Row {
    pub(crate) fn decimals(&self) -> usize {
        if self.figure.is_ratio() { 2 } else { 0 }
    }
}

/// What one run measured.
#[derive(Debug, Default)]
pub(crate) struct Report {
    turns: BTreeMap<(Figure, Way), Vec<f64>>,
}

impl Report {
    pub(crate) fn add(&mut self, way: Way, figure: Figure, number: f64) {
        self.turns.entry((figure, way)).or_default().push(number);
    }

    pub(crate) fn add_latencies(&mut self, way: Way, bytes: usize, mut took: Vec<Duration>) {
        took.sort_unstable();
        let micros = |at: usize| took[at].as_secs_f64() * 1e6;
        let (median, high) = (micros(took.len() / 2), micros(took.len() * 99 / 100));
        self.add(way, Figure::Median(bytes), median);
        self.add(way, Figure::High(bytes), high);
    }

    /// The median of all turns for each figure.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut figures: Vec<Figure> = self.turns.keys().map(|(figure, _)| *figure).collect();
        figures.dedup();
        figures
            .into_iter()
            .map(|figure| {
                let measured = Way::ALL.map(|way| self.median(figure, way));
                let (unit, outcome) = figure.outcome(measured);
                Row {
                    figure,
                    measured,
                    unit,
                    outcome,
                }
            })
            .collect()
    }

    fn median(&self, figure: Figure, way: Way) -> f64 {
        median(self.turns.get(&(figure, way)).cloned().unwrap_or_default())
    }
}

/// Not a number if there is none.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
