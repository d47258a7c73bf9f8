//! Medians of what was measured, and their ratios.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::setup::Way;

/// A kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// Microseconds a call of so many bytes with one open, the median of one turn.
    MedianMicros(usize),
    /// The same, 99 of 100 calls being faster.
    HighMicros(usize),
    CallsASecond,
    MebibytesASecond,
    /// From the start of a connection to its first list of tools.
    FirstListMicros,
}

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
        self.add(way, Figure::MedianMicros(bytes), median);
        self.add(way, Figure::HighMicros(bytes), high);
    }

    /// A Markdown table, one row a figure.
    pub(crate) fn render(&self) -> String {
        let mut text = "| figure | direct | do-nothing relay | mcpd | ratio |\n| --- | --- | --- | --- | --- |\n".to_owned();
        for figure in self.figures() {
            let [direct, relay, mcpd] = Way::ALL.map(|way| self.median(figure, way));
            let ratio = match figure {
                Figure::MedianMicros(_) | Figure::HighMicros(_) => {
                    format!(
                        "{:.2} of what the relay adds",
                        (mcpd - direct) / (relay - direct)
                    )
                }
                Figure::CallsASecond => format!("{:.2} of the relay", mcpd / relay),
                Figure::MebibytesASecond | Figure::FirstListMicros => {
                    format!("{:.2} of direct", mcpd / direct)
                }
            };
            let name = figure.name();
            text.push_str(&format!(
                "| {name} | {direct:.1} | {relay:.1} | {mcpd:.1} | {ratio} |\n"
            ));
        }
        text
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = self.turns.keys().map(|(figure, _)| *figure).collect();
        figures.dedup();
        figures
    }

    fn median(&self, figure: Figure, way: Way) -> f64 {
        let mut numbers = self.turns.get(&(figure, way)).cloned().unwrap_or_default();
        numbers.sort_by(f64::total_cmp);
        numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

impl Figure {
    fn name(self) -> String {
        match self {
            Self::MedianMicros(bytes) => format!("µs a call, {bytes} bytes, one open, median"),
            Self::HighMicros(bytes) => format!("µs a call, {bytes} bytes, one open, p99"),
            Self::CallsASecond => "calls a second, 32 open".to_owned(),
            Self::MebibytesASecond => "MiB a second, answers of 10 MiB".to_owned(),
            Self::FirstListMicros => "µs from connect to the first tools/list".to_owned(),
        }
    }
}
