//! A terminal that a program can't tell from one with a person before it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use std::ffi::OsStr;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Longer than anything takes here, however busy the machine is.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

/// The side of it where the person sits.
pub struct Terminal {
    keys: File,
    screen: Receiver<Vec<u8>>,
    /// What was shown and not yet expected.
    shown: Vec<u8>,
    other: File,
}

impl Terminal {
    /// A terminal, and the program's side of it.
    pub fn open() -> (Self, File) {
        let main: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal can be had");
        grantpt(&main).and_then(|()| unlockpt(&main)).expect("it is ours");
        let name = ptsname(&main, Vec::new()).expect("it has a name");
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        let other = OpenOptions::new().read(true).write(true).open(path).expect("its other side opens");
        let size = Winsize { ws_row: 30, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&other, size).expect("it has a size");
        let keys = File::from(main);
        let mut from = keys.try_clone().expect("a descriptor can be had");
        let (to, screen) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the other side is closed for good, or the test is over.
            while let Ok(len) = from.read(&mut bytes)
                && to.send(bytes[..len].to_vec()).is_ok()
            {}
        });
        let side = other.try_clone().expect("a descriptor can be had");
        (Self { keys, screen, shown: Vec::new(), other }, side)
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it takes keys");
    }

    /// Waits until `text` is shown, and returns all that was shown since the last call, up to and with it.
    pub fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.shown.windows(text.len()).position(|window| window == text.as_bytes()) {
                let rest = self.shown.split_off(at + text.len());
                let seen = std::mem::replace(&mut self.shown, rest);
                return String::from_utf8_lossy(&seen).into_owned();
            }
            let Ok(more) = self.screen.recv_timeout(PATIENCE) else {
                panic!("{text:?} never came; shown: {:?}", String::from_utf8_lossy(&self.shown));
            };
            self.shown.extend(more);
        }
    }

    /// Whether what is typed comes line by line, as a shell's user expects it.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.other).expect("it has modes").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}
