//! Exit codes: which failure is whose fault.

use std::fmt;
use std::process::ExitCode;

use crate::terminal::INTERRUPTED_CODE;

/// A failure that the command line is to blame for.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A failure that a model file is to blame for, where its header alone was read.
#[derive(Debug)]
pub struct BadFile(pub String);

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadFile {}

/// The exit code of a failure: 1 failed, 2 wrong usage, 4 bad model file, 130 interrupted.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    let code = error.chain().find_map(|cause| {
        if cause.is::<Usage>() {
            return Some(2);
        }
        if cause.is::<BadFile>() {
            return Some(4);
        }
        match cause.downcast_ref::<muser_engine::Error>()? {
            muser_engine::Error::BadModel { .. } | muser_engine::Error::NotFinite { .. } => Some(4),
            muser_engine::Error::Interrupted => Some(INTERRUPTED_CODE),
            muser_engine::Error::UnknownToken { .. }
            | muser_engine::Error::PromptTooLong { .. }
            | muser_engine::Error::EmptyPrompt => Some(2),
            _ => None,
        }
    });
    ExitCode::from(code.unwrap_or(1))
}
