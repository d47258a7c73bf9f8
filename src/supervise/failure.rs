//! Why a child could not be started: the stage that failed, the error number, the words for it.
//!
//! Decides which failures are worth a retry by the clock and which need a person first. Never
//! holds a value of the environment or an expanded argument.

use thiserror::Error;

/// How far a start came before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A name in the configuration could not be expanded.
    Configuration,
    /// A value of the environment could not be had from its file or command.
    Environment,
    /// The program was not found, or the file found cannot be run.
    Resolve,
    /// Pipes or the memory file for the plan could not be made.
    Pipe,
    /// The control group of the run could not be made or entered.
    ControlGroup,
    /// `posix_spawn` of the shim, or opening its pidfd.
    Spawn,
    /// The shim could not read its plan.
    Plan,
    /// `setsid` in the shim.
    Session,
    /// Signal mask and dispositions in the shim.
    Signals,
    /// A limit of the configuration could not be set.
    Limits,
    /// `chdir` to the working directory.
    Directory,
    /// Marking the descriptors from 3 on as close-on-exec.
    Descriptors,
    /// `execve` itself.
    Exec,
}

impl Stage {
    /// Every stage that the shim reports, by the number it stands for on the status pipe.
    const REPORTED: [(u8, Self); 8] = [
        (1, Self::Plan),
        (2, Self::Session),
        (3, Self::Signals),
        (4, Self::Directory),
        (5, Self::Descriptors),
        (6, Self::Exec),
        (7, Self::ControlGroup),
        (8, Self::Limits),
    ];

    /// The number of this stage on the status pipe; 0 for one that the shim never reports.
    pub fn code(self) -> u8 {
        Self::REPORTED
            .iter()
            .find(|(_, stage)| *stage == self)
            .map_or(0, |(code, _)| *code)
    }

    /// The stage with this number on the status pipe.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::REPORTED
            .iter()
            .find(|(known, _)| *known == code)
            .map(|(_, stage)| *stage)
    }

    /// The name in status and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Environment => "environment",
            Self::Resolve => "resolve",
            Self::Pipe => "pipe",
            Self::ControlGroup => "cgroup",
            Self::Spawn => "spawn",
            Self::Plan => "plan",
            Self::Session => "setsid",
            Self::Signals => "signals",
            Self::Limits => "limits",
            Self::Directory => "chdir",
            Self::Descriptors => "descriptors",
            Self::Exec => "exec",
        }
    }
}

/// What follows from a failure to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The program or directory is wrong: `failed/exec` at once, retried by demand once a minute.
    Exec,
    /// The configuration is wrong: `failed/config`, never retried by demand.
    Config,
    /// The machine or a source of a secret refused: back-off like any unstable run.
    Resources,
}

/// A start that failed. `Display` is one sentence for people, without the hint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{detail}")]
pub struct SpawnFailure {
    pub stage: Stage,
    /// The error number of the call that failed, where a call failed.
    pub errno: Option<i32>,
    /// What failed and what was seen, naming file or directory.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Error numbers that pass: memory, processes, descriptors, a program file still being written.
/// From `execve(2)`, `posix_spawn(3)` and `open(2)`; numbers are the same on every Linux port
/// that Rust's standard library supports as 64 bit, x86-64 and AArch64 among them.
const PASSING: [i32; 6] = [
    4,  /* EINTR */
    11, /* EAGAIN */
    12, /* ENOMEM */
    23, /* ENFILE */
    24, /* EMFILE */
    26, /* ETXTBSY */
];

impl SpawnFailure {
    pub fn new(stage: Stage, errno: Option<i32>, detail: impl Into<String>) -> Self {
        Self {
            stage,
            errno,
            detail: detail.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What follows from it.
    pub fn kind(&self) -> FailureKind {
        match self.stage {
            Stage::Configuration => FailureKind::Config,
            _ if self.errno.is_some_and(|errno| PASSING.contains(&errno)) => FailureKind::Resources,
            Stage::Resolve | Stage::Limits | Stage::Directory | Stage::Exec => FailureKind::Exec,
            Stage::Environment
            | Stage::Pipe
            | Stage::ControlGroup
            | Stage::Spawn
            | Stage::Plan
            | Stage::Session
            | Stage::Signals
            | Stage::Descriptors => FailureKind::Resources,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stage: Stage, errno: Option<i32>, expected: FailureKind) {
        assert_eq!(SpawnFailure::new(stage, errno, "x").kind(), expected);
    }

    #[test]
    fn a_wrong_program_or_directory_needs_a_person() {
        check(Stage::Resolve, None, FailureKind::Exec);
        check(Stage::Exec, Some(2), FailureKind::Exec);
        check(Stage::Exec, Some(8), FailureKind::Exec);
        check(Stage::Directory, Some(13), FailureKind::Exec);
        check(Stage::Configuration, None, FailureKind::Config);
    }

    #[test]
    fn what_passes_is_retried() {
        check(Stage::Exec, Some(26), FailureKind::Resources);
        check(Stage::Spawn, Some(11), FailureKind::Resources);
        check(Stage::Pipe, Some(24), FailureKind::Resources);
        check(Stage::Environment, None, FailureKind::Resources);
    }

    #[test]
    fn stages_keep_their_numbers_on_the_status_pipe() {
        for (code, stage) in Stage::REPORTED {
            assert_eq!(stage.code(), code);
            assert_eq!(Stage::from_code(code), Some(stage));
        }
        assert_eq!(Stage::from_code(0), None);
        assert_eq!(Stage::Resolve.code(), 0);
    }
}
