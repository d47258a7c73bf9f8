//! What becomes of lines on a child's stdout that are no messages.
//!
//! Decides which open requests are charged with such a line, so that nobody waits for an answer
//! that was lost, and how loudly noise is reported. Never ends a session.

use std::collections::BTreeMap;
use std::time::Duration;

use super::action::LogLevel;
use super::requests::{RequestKey, Requests};
use crate::protocol::{Fault, FaultReason};
use crate::time::Moment;

/// Between two reports of noise in the log.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Which line was charged last.
#[derive(Debug, Default)]
pub(super) struct Charges {
    /// Whether the line before this one was charged to a request: what follows it may be the rest
    /// of the same answer.
    is_after_charged: bool,
}

impl Charges {
    /// A whole message came.
    pub(super) fn note_message(&mut self) {
        self.is_after_charged = false;
    }

    /// The requests that get an error because of this line.
    pub(super) fn charge(&mut self, fault: &Fault, requests: &Requests) -> Vec<RequestKey> {
        let was_charged = std::mem::take(&mut self.is_after_charged);
        if fault.has_method || !fault.reason.loses_a_message() {
            return Vec::new();
        }
        let charged: Vec<_> = if fault.ids.is_empty() {
            let may_guess =
                !was_charged && (fault.reason == FaultReason::MultiLine || !is_indented(fault));
            requests
                .only_written()
                .filter(|_| may_guess)
                .into_iter()
                .collect()
        } else {
            let mut named: Vec<_> = fault
                .ids
                .iter()
                .filter_map(|id| requests.of_upstream(id))
                .collect();
            named.dedup();
            named
        };
        self.is_after_charged = !charged.is_empty();
        charged
    }
}

/// A line that starts with blanks goes on with what a line before it began: the inner lines of
/// JSON that was printed over several.
fn is_indented(fault: &Fault) -> bool {
    matches!(fault.sample.first(), Some(b' ' | b'\t'))
}

/// What is wrong with a line, for the log.
pub(super) fn complaint(fault: &Fault) -> String {
    if fault.reason == FaultReason::MultiLine {
        return "the server prints multi-line JSON; a message must stand on one line".to_owned();
    }
    fault.reason.to_string()
}

/// What a request is told that was charged.
pub(super) fn describe(fault: &Fault) -> String {
    match fault.reason {
        FaultReason::TooLong => format!(
            "the answer is larger than message_limit ({} bytes)",
            fault.len_bytes
        ),
        _ => format!("the answer could not be read: {}", complaint(fault)),
    }
}

/// Counts noise and reports it at a bounded rate.
#[derive(Debug, Default)]
pub(super) struct Noise {
    lines: u64,
    sample: Option<String>,
    /// When the next report of each kind may go out; the kinds are few and fixed.
    quiet_until: BTreeMap<String, Moment>,
}

impl Noise {
    /// Counts one line: what is wrong with it and how it starts. The lines for the log, if it is
    /// time for a report.
    pub(super) fn note(
        &mut self,
        reason: &str,
        sample: String,
        now: Moment,
    ) -> Vec<(LogLevel, String)> {
        self.lines += 1;
        let mut report = Vec::new();
        if self
            .quiet_until
            .get(reason)
            .is_none_or(|until| *until <= now)
        {
            self.quiet_until
                .insert(reason.to_owned(), now + REPORT_EVERY);
            let lines = self.lines;
            report.push((
                LogLevel::Warn,
                format!("stdout holds what is no message ({lines} lines so far): {reason}"),
            ));
            report.push((LogLevel::Debug, format!("such a line of stdout: {sample}")));
        }
        self.sample = Some(sample);
        report
    }

    /// Puts another text in the place of the sample.
    pub(super) fn replace_sample(&mut self, sample: String) {
        self.sample = Some(sample);
    }

    /// How many lines there were.
    pub(super) const fn lines(&self) -> u64 {
        self.lines
    }

    /// The last one.
    pub(super) fn sample(&self) -> Option<&str> {
        self.sample.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::requests::{Asker, OpenRequest, Progress, Purpose};
    use super::*;
    use crate::protocol::{Era, Line, LineReader};

    /// Feeds these lines with requests 1 to `open` open: the ids that each line is charged to.
    #[track_caller]
    fn check(open: u64, lines: &[(&str, &[u64])]) {
        let mut requests = Requests::default();
        let keys: Vec<_> = (0..open).map(|_| open_one(&mut requests)).collect();
        let mut charges = Charges::default();
        let mut reader = LineReader::new(64);
        for (line, charged) in lines {
            reader.feed(format!("{line}\n").as_bytes());
            match reader.poll().expect("a whole line") {
                Line::Fault(fault) => {
                    let got = charges.charge(&fault, &requests);
                    let expected: Vec<_> = charged
                        .iter()
                        .map(|id| keys[usize::try_from(id - 1).unwrap()])
                        .collect();
                    assert_eq!(got, expected, "{line}");
                    for key in got {
                        requests.remove(key);
                    }
                }
                Line::Message(_) | Line::Batch(_) => charges.note_message(),
            }
        }
    }

    fn open_one(requests: &mut Requests) -> RequestKey {
        let key = requests.next_key();
        requests.insert(
            key,
            OpenRequest {
                asker: Asker::Mux,
                purpose: Purpose::Call,
                method: "x".into(),
                arrived: Moment::ZERO,
                progress: Progress::Waiting,
                era: Era::Legacy,
                modern: None,
                is_call: false,
                had_progress: false,
                tool: None,
                last_progress: None,
            },
        );
        requests.mark_written(key, None);
        key
    }

    #[test]
    fn a_line_is_charged_to_the_request_whose_id_it_holds() {
        check(2, &[("{\"id\":2,\"result\":{", &[2])]);
        let long = format!("{{\"result\":\"{}\",\"id\":1}}", "x".repeat(80));
        check(2, &[(long.as_str(), &[1])]);
        check(2, &[("{\"id\":9,\"result\":{", &[])]);
    }

    #[test]
    fn without_an_id_the_only_open_request_is_charged() {
        check(1, &[("{\"result\":{", &[1])]);
        check(2, &[("{\"result\":{", &[])]);
        check(0, &[("{\"result\":{", &[])]);
    }

    #[test]
    fn the_line_that_follows_a_charged_one_is_not_charged_to_another() {
        check(2, &[("{\"id\":1,\"result\":\"a", &[1]), ("{\"b\"}", &[])]);
        check(
            2,
            &[
                ("{\"id\":1,\"result\":\"a", &[1]),
                ("{\"b\"}", &[]),
                ("{\"jsonrpc\":\"2.0\",", &[2]),
            ],
        );
        check(
            2,
            &[
                ("{\"id\":1,\"result\":\"a", &[1]),
                ("{}", &[]),
                ("{\"result\":", &[2]),
            ],
        );
    }

    #[test]
    fn the_inner_lines_of_pretty_printed_json_are_charged_to_nobody() {
        check(
            2,
            &[
                ("{\"id\":1,", &[1]),
                ("\"result\": {", &[]),
                ("  {\"a\":", &[]),
                ("  }", &[]),
            ],
        );
    }

    #[test]
    fn a_message_over_several_lines_will_not_come() {
        let jsonrpc = "  \"jsonrpc\": \"2.0\",";
        check(
            1,
            &[
                ("{", &[]),
                (jsonrpc, &[1]),
                ("  \"id\": 1,", &[]),
                ("}", &[]),
            ],
        );
        check(2, &[("{", &[]), (jsonrpc, &[]), ("}", &[])]);
    }

    #[test]
    fn an_object_that_is_printed_for_people_costs_no_request() {
        check(
            1,
            &[
                ("{", &[]),
                ("  \"debug\": {", &[]),
                ("  }", &[]),
                ("}", &[]),
            ],
        );
    }

    #[test]
    fn plain_noise_and_lines_with_a_method_are_charged_to_nobody() {
        check(
            1,
            &[
                ("listening on stdio", &[]),
                ("\u{1b}[33mwarn", &[]),
                ("7", &[]),
            ],
        );
        check(1, &[("{\"method\":\"notifications/x\",\"params\":{", &[])]);
    }

    #[test]
    fn noise_is_reported_at_a_bounded_rate() {
        let mut noise = Noise::default();
        let at = |seconds| Moment::ZERO + Duration::from_secs(seconds);
        assert_eq!(noise.note("banner", "a".to_owned(), at(0)).len(), 2);
        for second in 0..60 {
            assert!(noise.note("banner", "b".to_owned(), at(second)).is_empty());
        }
        assert_eq!(noise.note("banner", "c".to_owned(), at(60)).len(), 2);
        assert_eq!((noise.lines(), noise.sample()), (62, Some("c")));
    }
}
