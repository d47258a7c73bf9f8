//! (room protocol)
