//! Failures as the command line reports them: in one line, and by an exit code that says whose fault it is.

use std::fmt;
use std::process::ExitCode;

use muser_engine::TapFileError;
use muser_text::TextError;
use muser_text::template::TemplateError;

use crate::interrupt;

/// Exit code of wrong usage.
const USAGE: u8 = 2;
/// Exit code of what the memory plan refuses.
const REFUSED: u8 = 3;
/// Exit code of a bad model file, and of files of taps that can't be compared.
pub const BAD_MODEL: u8 = 4;

/// A failure that the command line or what it names is to blame for.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// What is refused because it does not fit into memory.
#[derive(Debug)]
pub struct DoesNotFit(pub String);

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DoesNotFit {}

/// An error of opening a model. A pre-tokeniser that nobody knows is the flag's fault where it was forced.
pub fn of_opening(error: muser_engine::Error, is_pre_forced: bool) -> anyhow::Error {
    use muser_engine::BadModel;
    match &error {
        muser_engine::Error::BadModel { source, .. } if is_pre_forced => match &**source {
            blamed @ (BadModel::Text(TextError::UnknownPreTokenizer { .. }) | BadModel::NoPreTokenizer { .. }) => {
                Usage(format!("--force-pre: {blamed}")).into()
            }
            _ => error.into(),
        },
        _ => error.into(),
    }
}

/// An error and its causes in one line. A cause that the error before it already ends with is not said again.
pub fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| {
        if said.is_empty() {
            cause
        } else if said.ends_with(&cause) {
            said
        } else {
            said + ": " + &cause
        }
    })
}

/// The exit code of a failure: 1 failed, 2 wrong usage, 3 refused by the memory plan, 4 bad model file, 130 interrupted, 129
/// and 143 asked to end.
pub fn code_of(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(code(error).unwrap_or(1))
}

/// Whether the model file is to blame.
pub fn is_of_model(error: &anyhow::Error) -> bool {
    code(error) == Some(BAD_MODEL)
}

fn code(error: &anyhow::Error) -> Option<u8> {
    error.chain().find_map(|cause| {
        if cause.is::<Usage>() {
            Some(USAGE)
        } else if cause.is::<DoesNotFit>() {
            Some(REFUSED)
        } else if cause.is::<TapFileError>() {
            // Not 1, which says that two files differ.
            Some(BAD_MODEL)
        } else if let Some(error) = cause.downcast_ref::<muser_server::Error>() {
            code_of_server(error)
        } else if let Some(error) = cause.downcast_ref::<muser_memory::Error>() {
            code_of_memory(error)
        } else {
            code_of_engine(cause.downcast_ref()?)
        }
    })
}

fn code_of_engine(error: &muser_engine::Error) -> Option<u8> {
    use muser_engine::Error;
    match error {
        // A template may refuse a conversation; any other failure of it is the file's.
        Error::Template(TemplateError::Raised { .. })
        | Error::UnknownToken { .. }
        | Error::PromptTooLong { .. }
        | Error::EmptyPrompt
        | Error::ChunkTooShort { .. }
        | Error::TextTooShort { .. }
        | Error::Unsplittable(_)
        | Error::SlotCount { .. }
        | Error::Exists { .. } => Some(USAGE),
        // A thread that the system does not give is nobody's fault.
        Error::Template(TemplateError::Thread(_)) => None,
        Error::BadModel { source, .. }
            if matches!(**source, muser_engine::BadModel::Template(TemplateError::Thread(_))) =>
        {
            None
        }
        Error::BadModel { .. }
        | Error::Replaced { .. }
        | Error::NotFinite { .. }
        | Error::NothingRendered
        | Error::Template(_) => Some(BAD_MODEL),
        Error::Interrupted => Some(interrupt::exit_code()),
        Error::Step(error) => code_of_engine(error),
        Error::Memory(error) | Error::Model(muser_model::Error::Memory(error)) => code_of_memory(error),
        _ => None,
    }
}

fn code_of_server(error: &muser_server::Error) -> Option<u8> {
    use muser_server::Error;
    match error {
        Error::KeyDemanded { .. }
        | Error::KeyFile { .. }
        | Error::KeyFileMode { .. }
        | Error::BadKey { .. }
        | Error::NoKey { .. } => Some(USAGE),
        Error::Engine(error) => code_of_engine(error),
        _ => None,
    }
}

fn code_of_memory(error: &muser_memory::Error) -> Option<u8> {
    match error {
        muser_memory::Error::DoesNotFit(_)
        | muser_memory::Error::TooLarge { .. }
        | muser_memory::Error::NotAsAsked { .. } => Some(REFUSED),
        muser_memory::Error::EmptyFile { .. } | muser_memory::Error::FileChanged { .. } => Some(BAD_MODEL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let io = std::io::Error::other("disk on fire");
        let said = muser_memory::Error::File { path: "a.gguf".into(), action: "open the file", source: io };
        let error = anyhow::Error::from(said).context("loading");
        assert_eq!(message(&error), "loading: a.gguf: could not open the file: disk on fire");
        assert_eq!(message(&anyhow!("low").context("high")), "high: low");
    }
}
