//! `${NAME}` in values.

/// Text with `${NAME}` and `${NAME:-default}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(pub(crate) String);
