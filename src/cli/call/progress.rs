//! Progress of a call, as a bar and as a line. Pure.

use serde_json::Value;

use crate::cli::calls::cut;
use crate::cli::escape::escape;

/// Columns of the bar itself.
const BAR: u32 = 24;

/// What a server said of its progress.
struct Progress {
    done: f64,
    total: Option<f64>,
    message: Option<String>,
}

impl Progress {
    fn of(params: &Value) -> Self {
        Self {
            done: params["progress"].as_f64().unwrap_or(0.0),
            total: params["total"].as_f64().filter(|total| *total > 0.0),
            message: params["message"].as_str().map(escape),
        }
    }

    /// How much of it is done, from 0 to 1.
    fn share(&self) -> Option<f64> {
        self.total.map(|total| (self.done / total).clamp(0.0, 1.0))
    }

    fn count(&self) -> String {
        match self.total {
            Some(total) => format!("{}/{total}", self.done),
            None => self.done.to_string(),
        }
    }
}

/// `[########----------------]  33%  message`, in less than `width` columns.
pub(super) fn render_bar(params: &Value, width: usize) -> String {
    let progress = Progress::of(params);
    let head = match progress.share() {
        Some(share) => {
            let is_filled = |at: &u32| (f64::from(*at) + 0.5) / f64::from(BAR) <= share;
            let filled = (0..BAR).filter(is_filled).count();
            let bar = "#".repeat(filled) + &"-".repeat(BAR as usize - filled);
            format!("[{bar}] {:3.0}%", share * 100.0)
        }
        None => progress.count(),
    };
    let text = match progress.message {
        Some(message) => format!("{head}  {message}"),
        None => head,
    };
    cut(&text, width.saturating_sub(1))
}

/// `progress 3/10: message`
pub(super) fn render_progress(params: &Value) -> String {
    let progress = Progress::of(params);
    let count = progress.count();
    match progress.message {
        Some(message) => format!("progress {count}: {message}"),
        None => format!("progress {count}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bar_shows_the_share() {
        let bar = |done: f64| render_bar(&json!({"progress": done, "total": 4}), 80);
        assert_eq!(bar(0.0), format!("[{}]   0%", "-".repeat(24)));
        assert_eq!(
            bar(1.0),
            format!("[{}{}]  25%", "#".repeat(6), "-".repeat(18))
        );
        assert_eq!(bar(9.0), format!("[{}] 100%", "#".repeat(24)));
        let named = json!({"progress": 2, "total": 4, "message": "half\u{1b}way"});
        assert!(render_bar(&named, 80).ends_with("50%  half\\eway"));
        assert_eq!(render_bar(&named, 20).chars().count(), 19);
        assert_eq!(render_bar(&json!({"progress": 7}), 80), "7");
    }

    #[test]
    fn a_line_says_the_same() {
        assert_eq!(
            render_progress(&json!({"progress": 1.5, "total": 4, "message": "m"})),
            "progress 1.5/4: m"
        );
        assert_eq!(render_progress(&json!({})), "progress 0");
    }
}
