//! The interactive chat: lines with editing and history, one conversation.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use muser_engine::Finish;
use muser_text::template::Message;
use rustyline::DefaultEditor;
use rustyline::error::{ReadlineError, Signal};

use super::super::warn_of_lost_bytes;
use super::Talk;
use crate::args::RunArgs;
use crate::exit::{self, Usage};
use crate::terminal::{print, say, warn};

/// What to do when a conversation has outgrown its context.
const FULL: &str = "; /clear starts a new conversation";

const HELP: &str = "\
/help    this list
/clear   start a new conversation
/exit    leave; so does Ctrl-D
A line that ends in \\ goes on in the next one; \"\"\" begins and ends a text of several lines.
Ctrl-C ends an answer, and empties a line.";

/// What a person typed.
enum Input {
    Text(String),
    Nothing,
    End,
}

pub(super) fn run(args: &RunArgs, talk: &mut Talk) -> Result<ExitCode> {
    if talk.opened.template.is_none() {
        let path = args.model.display();
        return Err(Usage(format!("{path} has no chat template: give a PROMPT, and it is continued as it is")).into());
    }
    let system = || args.system.iter().map(|system| Message::new("system", system.as_str())).collect::<Vec<_>>();
    let mut messages = system();
    let mut prompt = Prompt::open()?;
    say(format_args!("[{} | {} | seed {}]", talk.loaded(), talk.opened.engine.describe_backend(), talk.seed));
    say(format_args!("/help lists what can be typed."));
    loop {
        let text = match prompt.read()? {
            Input::Nothing => continue,
            Input::End => break,
            Input::Text(text) => text,
        };
        match text.trim() {
            "/help" => say(format_args!("{HELP}")),
            "/exit" => break,
            "/clear" => messages = system(),
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                say(format_args!("{command} is not a command; /help lists them"));
            }
            _ => {
                warn_of_lost_bytes(&talk.opened.tokenizer, &text);
                messages.push(Message::new("user", text));
                if answer(talk, &mut messages)?.is_break() {
                    break;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers the last message and appends the answer. A message without an answer is taken back, and the chat goes on.
/// Breaks when nobody reads the answers.
fn answer(talk: &mut Talk, messages: &mut Vec<Message>) -> Result<ControlFlow<()>> {
    let answer = match talk.chat_tokens(messages).and_then(|tokens| talk.answer(&tokens, true)) {
        Ok(answer) => answer,
        // What the file did to this answer, it will do to the next.
        Err(error) if exit::is_of_model(&error) => return Err(error),
        Err(error) => {
            messages.pop();
            let is_full = matches!(error.downcast_ref(), Some(muser_engine::Error::PromptTooLong { .. }));
            warn(format_args!("{}{}", exit::message(&error), if is_full { FULL } else { "" }));
            return Ok(ControlFlow::Continue(()));
        }
    };
    let unread = answer.unread || print("\n")?.is_break();
    say(format_args!("[{}]", answer.summary()));
    if answer.ids.is_empty() {
        messages.pop();
    } else {
        messages.push(Message::new("assistant", answer.text));
    }
    if answer.generation.finish == Finish::ContextFull {
        warn(format_args!("the context is full{FULL}"));
    }
    Ok(if unread { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// Where a person types.
struct Prompt {
    editor: DefaultEditor,
    history: Option<PathBuf>,
}

impl Prompt {
    fn open() -> Result<Self> {
        let mut editor = DefaultEditor::new().context("opening the terminal")?;
        let history = history_file();
        if let Some(history) = history.as_ref().filter(|history| history.exists())
            && let Err(error) = editor.load_history(history)
        {
            warn(format_args!("{}: the history can't be read: {error}", history.display()));
        }
        Ok(Self { editor, history })
    }

    /// One message: a line, or several.
    fn read(&mut self) -> Result<Input> {
        let mut text = String::new();
        let mut quoted = false;
        loop {
            let line = match self.editor.readline(if text.is_empty() && !quoted { "> " } else { ". " }) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted | ReadlineError::Signal(Signal::Interrupt)) => {
                    return Ok(Input::Nothing);
                }
                Err(ReadlineError::Eof) => return Ok(Input::End),
                Err(error) => return Err(error).context("reading from the terminal"),
            };
            match (quoted, line.trim() == "\"\"\"", line.strip_suffix('\\')) {
                (false, true, _) if text.is_empty() => quoted = true,
                (true, true, _) => break,
                (true, false, _) => text = text + &line + "\n",
                (false, _, Some(line)) => text = text + line + "\n",
                (false, _, None) => {
                    text += &line;
                    break;
                }
            }
        }
        let text = text.trim_end_matches('\n');
        if text.trim().is_empty() {
            return Ok(Input::Nothing);
        }
        self.remember(text);
        Ok(Input::Text(text.to_owned()))
    }

    /// Adds to the history, here and in its file, which other chats may add to as well.
    fn remember(&mut self, text: &str) {
        // A history that can't be kept is no reason to end the chat. It is said once.
        let added = self.editor.add_history_entry(text);
        if let Some(history) = &self.history
            && let Err(error) = added.map_err(io::Error::other).and_then(|_| append(&mut self.editor, history))
        {
            warn(format_args!("{}: the history can't be saved: {error}", history.display()));
            self.history = None;
        }
    }
}

/// Where lines typed earlier are kept: `$XDG_STATE_HOME/muser/history`, else `~/.local/state/muser/history`.
fn history_file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("muser/history"))
}

fn append(editor: &mut DefaultEditor, history: &Path) -> io::Result<()> {
    if let Some(folder) = history.parent() {
        fs::create_dir_all(folder)?;
    }
    // rustyline makes the file readable by its owner only.
    editor.append_history(history).map_err(io::Error::other)
}
