//! A mapped file that shrinks while it is read. Each case runs in a process of its own, this same test binary: the parent
//! names the case in the environment, and the child ends in the bus error.

#![cfg(unix)]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use muser_memory::{ModelFile, page_size, report_bus_errors};

/// Runs the test `name` again in a child process that sees the path of a file of eight pages.
fn run_child(name: &str) -> (Output, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinking.gguf");
    File::create(&path).unwrap().set_len(8 * page_size() as u64).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("MUSER_TEST_SHRINKING_FILE", &path)
        // Built with the address sanitizer, the process would otherwise have its handler for the signal.
        .env("ASAN_OPTIONS", "handle_sigbus=0:detect_leaks=0")
        .output()
        .unwrap();
    (output, path.display().to_string())
}

/// In the child: the file to shrink.
fn in_child() -> Option<std::path::PathBuf> {
    std::env::var_os("MUSER_TEST_SHRINKING_FILE").map(Into::into)
}

/// Maps the file, cuts it to 100 bytes, and reads its third page.
fn read_past_the_new_end(path: &Path) -> u8 {
    let file = ModelFile::open(path).unwrap();
    File::options().write(true).open(path).unwrap().set_len(100).unwrap();
    std::hint::black_box(file.bytes()[2 * page_size() + 1])
}

#[test]
fn m17_a_file_truncated_under_its_mapping_ends_in_a_message_and_the_chosen_exit_code() {
    if let Some(path) = in_child() {
        // A mapping that came and went must not confuse the report.
        drop(ModelFile::open(&std::env::current_exe().unwrap()).unwrap());
        report_bus_errors(7).unwrap();
        read_past_the_new_end(&path);
        unreachable!("the read ends the process");
    }
    let name = "m17_a_file_truncated_under_its_mapping_ends_in_a_message_and_the_chosen_exit_code";
    let (output, path) = run_child(name);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    let (byte, size) = (2 * page_size() + 1, 8 * page_size());
    let message = format!(
        "error: {path}: reading byte {byte} of the mapped file failed: \
         the file changed while it was in use, from {size} to 100 bytes\n"
    );
    assert!(stderr.ends_with(&message), "{stderr}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_bus_error_outside_of_model_files_is_left_to_whoever_handled_it_before() {
    use std::os::unix::process::ExitStatusExt;

    if let Some(path) = in_child() {
        let file = ModelFile::open(&path).unwrap();
        report_bus_errors(7).unwrap();
        let file_bytes = file.size_bytes();
        drop(file);
        // A mapping that the library does not know, in the place where one that it knew was.
        let foreign = File::open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        // SAFETY: a fresh private mapping; nothing else refers to it.
        let bytes = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                file_bytes,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::PRIVATE,
                foreign,
                0,
            )
        };
        // SAFETY: mapped and readable; that the file has no such byte is what this child is for.
        std::hint::black_box(unsafe { bytes.unwrap().cast::<u8>().read_volatile() });
        unreachable!("the read ends the process");
    }
    let (output, _) = run_child("a_bus_error_outside_of_model_files_is_left_to_whoever_handled_it_before");
    assert_eq!(output.status.signal(), Some(7), "SIGBUS, {output:?}");
}
