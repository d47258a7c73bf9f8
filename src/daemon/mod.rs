//! (room daemon)
