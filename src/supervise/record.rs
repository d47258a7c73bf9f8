//! The record of a run: what a later daemon needs to tell a process that this one left from a
//! stranger with the same number.
//!
//! Text and judgement only; the files are [`records`](super::records)'. A process is ours only if
//! everything that was noted is true of it still; in any doubt it is a stranger and left alone.

use serde::{Deserialize, Serialize};

use super::process_tree::Process;

/// Which numbers a record speaks of: a pid means another process after a boot and in another
/// namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Place {
    /// `/proc/sys/kernel/random/boot_id`.
    pub(super) boot: String,
    /// `/proc/self/ns/pid` as a link.
    pub(super) pid_namespace: String,
}

/// One leader. What a file lacks is empty, and so never true of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RunRecord {
    pub(super) pid: u32,
    /// Field 22 of `/proc/PID/stat`.
    pub(super) start_ticks: Option<u64>,
    #[serde(flatten)]
    pub(super) place: Place,
    /// The value of `MCPD_INSTANCE`; empty for a run without a tag.
    pub(super) tag: String,
    /// The folder of its control group, if it has one of its own.
    pub(super) leaf: Option<String>,
}

/// What a record says of the machine as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The process lives, and is the one that was noted.
    Ours,
    /// Nobody has this number any more.
    Gone,
    /// The machine was started anew since: nothing of before it can live.
    OtherBoot,
    /// Somebody has the number who may be anybody; why it cannot be ours.
    Stranger(&'static str),
}

impl RunRecord {
    /// Compares with the process that has the number now, and the group that it is in.
    pub(super) fn judge(
        &self,
        here: &Place,
        now: Option<&Process>,
        group: Option<&str>,
    ) -> Judgement {
        if self.place.boot.is_empty() {
            return Judgement::Stranger("the record names no boot");
        }
        if self.place.boot != here.boot {
            return Judgement::OtherBoot;
        }
        if self.place.pid_namespace != here.pid_namespace {
            return Judgement::Stranger("the record is of another pid namespace");
        }
        let Some(now) = now else {
            return Judgement::Gone;
        };
        match self.start_ticks {
            None => return Judgement::Stranger("the record names no start time"),
            Some(ticks) if ticks != now.start_ticks => {
                return Judgement::Stranger("it was started at another time");
            }
            Some(_) => {}
        }
        match (&self.leaf, group) {
            (Some(leaf), Some(group)) if group == "/" || !leaf.ends_with(group) => {
                Judgement::Stranger("it is in another control group")
            }
            (Some(_), None) => Judgement::Stranger("its control group cannot be read"),
            _ => Judgement::Ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Place {
        Place {
            boot: "b".to_owned(),
            pid_namespace: "pid:[1]".to_owned(),
        }
    }

    fn record() -> RunRecord {
        RunRecord {
            pid: 7,
            start_ticks: Some(9),
            place: here(),
            tag: "u/s/1".to_owned(),
            leaf: None,
        }
    }

    fn process() -> Process {
        Process::parse("7 (p) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0 0").unwrap()
    }

    /// Fault 27: everything must match, or the process is left alone.
    #[test]
    fn only_what_matches_in_everything_is_ours() {
        let check = |change: fn(&mut RunRecord), expected| {
            let mut record = record();
            change(&mut record);
            let process = process();
            assert_eq!(record.judge(&here(), Some(&process), Some("/g")), expected);
        };
        let stranger = Judgement::Stranger;
        check(|_| {}, Judgement::Ours);
        check(|it| it.leaf = Some("/mount/g".to_owned()), Judgement::Ours);
        check(
            |it| it.start_ticks = Some(8),
            stranger("it was started at another time"),
        );
        check(
            |it| it.start_ticks = None,
            stranger("the record names no start time"),
        );
        check(
            |it| it.leaf = Some("/mount/h".to_owned()),
            stranger("it is in another control group"),
        );
        check(
            |it| it.place.pid_namespace = "pid:[2]".to_owned(),
            stranger("the record is of another pid namespace"),
        );
        check(
            |it| it.place.boot.clear(),
            stranger("the record names no boot"),
        );
        check(|it| it.place.boot = "c".to_owned(), Judgement::OtherBoot);
        assert_eq!(record().judge(&here(), None, None), Judgement::Gone);
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_lacks_what_it_lacks() {
        let text = serde_json::to_string(&record()).unwrap();
        assert_eq!(serde_json::from_str::<RunRecord>(&text).unwrap(), record());
        let bare: RunRecord = serde_json::from_str("{\"pid\": 7, \"more\": 1}").unwrap();
        assert_eq!((bare.pid, bare.start_ticks), (7, None));
    }
}
