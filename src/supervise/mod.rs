//! (room supervise)
