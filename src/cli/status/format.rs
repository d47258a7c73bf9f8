//! Numbers as people read them. Pure; units are in the names.

/// A length of time that was measured: `180ms`, `5.2s`, `41s`, `2h 11m`.
pub(crate) fn render_duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..10_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => render_age(ms),
    }
}

/// How long ago or ahead, in its two largest units: `0s`, `41s`, `2h 11m`, `3d 4h`.
pub(crate) fn render_age(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => two(minutes, "m", seconds % 60, "s"),
        3_600..86_400 => two(hours, "h", minutes % 60, "m"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

fn two(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit} {small}{small_unit}")
    }
}

/// Bytes with the unit that keeps three digits: `512B`, `88M`, `1.2G`.
pub(crate) fn render_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    // Tenths of the unit, so that no floating point is needed.
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    if tenths < 100 {
        format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{}{}", tenths / 10, UNITS[unit])
    }
}

/// The share of one processor over a child's life: `0.3%`, `99%`.
pub(crate) fn render_cpu(cpu_usec: u64, age_ms: u64) -> String {
    if age_ms == 0 {
        return "-".to_owned();
    }
    // Microseconds a millisecond are tenths of a percent.
    let tenths = cpu_usec / age_ms;
    if tenths < 100 {
        format!("{}.{}%", tenths / 10, tenths % 10)
    } else {
        format!("{}%", tenths / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rendered: String, expected: &str) {
        assert_eq!(rendered, expected);
    }

    #[test]
    fn times() {
        check(render_duration(180), "180ms");
        check(render_duration(5_250), "5.2s");
        check(render_duration(41_000), "41s");
        check(render_age(0), "0s");
        check(render_age(120_000), "2m");
        check(render_age(7_860_000), "2h 11m");
        check(render_age(273_600_000), "3d 4h");
        check(render_age(u64::MAX), "213503982334d 14h");
    }

    #[test]
    fn sizes() {
        check(render_size(512), "512B");
        check(render_size(1_536), "1.5K");
        check(render_size(148_897_792), "142M");
        check(render_size(u64::MAX), "16383P");
    }

    #[test]
    fn processor_shares() {
        check(render_cpu(3_000, 1_000), "0.3%");
        check(render_cpu(990_000, 1_000), "99%");
        check(render_cpu(5, 0), "-");
    }
}
