//! Every fault that the fake server can play is played by a test.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::FAKE;

fn test_sources() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = fs::read_dir(folder)
        .expect("the tests")
        .flatten()
        .map(|entry| entry.path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    sources
        .filter(|path| !path.ends_with("coverage.rs"))
        .map(|path| fs::read_to_string(path).expect("a test"))
        .collect()
}

/// The names of one part of `fake-mcp --help`.
fn names(help: &str, part: &str) -> Vec<String> {
    let after = help
        .split(&format!("\n{part}:\n"))
        .nth(1)
        .expect("the part");
    let lines = after.lines().take_while(|line| line.starts_with("  "));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_fault_is_played_by_a_test() {
    let output = Command::new(FAKE)
        .arg("--help")
        .output()
        .expect("the fake starts");
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let sources = test_sources();
    let mut missing = Vec::new();
    for part in [
        "Switches",
        "Tools",
        "Kinds of the tool reply",
        "Kinds of noise",
    ] {
        let names = names(&help, part);
        assert!(names.len() > 10, "{part}: {help}");
        for name in names {
            let played =
                sources.contains(&format!("\"{name}\"")) || sources.contains(&format!("\"{name}:"));
            // The bench itself gives every fake its record.
            if !played && name != "--record" {
                missing.push(format!("{part}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "played by no test: {missing:#?}");
}
