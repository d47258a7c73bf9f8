//! A terminal that a command runs in: a pseudo-terminal whose screen can be read and typed into.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::pty::{Winsize, openpty};

use super::wait::wait_until;

/// A command in a terminal of its own.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Runs `command` in a terminal of `rows` and `columns`.
    pub(crate) fn run(mut command: Command, rows: u16, columns: u16) -> Self {
        let window = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let size = |cells| NonZeroU16::new(cells).expect("a size");
        let pair = openpty(&window, None).expect("a pseudo-terminal");
        // Descriptors of openpty(3) are inherited by whatever another test starts meanwhile.
        for descriptor in [&pair.master, &pair.slave] {
            nix::fcntl::fcntl(
                descriptor,
                nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC),
            )
            .expect("close-on-exec");
        }
        let slave = || Stdio::from(pair.slave.try_clone().expect("a copy"));
        command
            .env("TERM", "xterm-256color")
            .stdin(slave())
            .stdout(slave())
            .stderr(slave());
        // A group of its own: what the terminal would send to a foreground group is sent to it.
        command.process_group(0);
        let child = command.spawn().expect("the command");
        drop(command);
        drop(pair.slave);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(size(rows), size(columns), 0)));
        let mut output = File::from(pair.master.try_clone().expect("a copy"));
        let shown = screen.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // EIO is how the end of the other side is told.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().expect("the screen").process(&bytes[..count]);
            }
        });
        Self {
            child,
            keyboard: File::from(pair.master),
            screen,
            reader: Some(reader),
        }
    }

    /// What the screen shows now.
    pub(crate) fn text(&self) -> String {
        self.screen.lock().expect("the screen").screen().contents()
    }

    /// Looks at the screen with its colours.
    pub(crate) fn with_screen<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.screen.lock().expect("the screen").screen())
    }

    /// Waits until the screen shows `text`, and gives the whole screen.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        wait_until(&format!("{text:?} on the screen"), || {
            let screen = self.text();
            screen.contains(text).then_some(screen)
        })
    }

    /// Whether the alternate screen is shown.
    pub(crate) fn is_alternate(&self) -> bool {
        let screen = self.screen.lock().expect("the screen");
        screen.screen().alternate_screen()
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the keys");
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Waits for the end of the command, and gives how it ended and what the screen shows then.
    pub(crate) fn wait_end(&mut self) -> (ExitStatus, String) {
        let status = wait_until("the end of the command", || {
            self.child.try_wait().expect("the command")
        });
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader");
        }
        (status, self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ended already where the test has gone well.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
