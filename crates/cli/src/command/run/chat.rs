//! The interactive chat: lines with editing and history, one conversation.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use muser_engine::Finish;
use muser_text::template::Message;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::Talk;
use crate::args::RunArgs;
use crate::exit::Usage;
use crate::terminal::{clear_interrupt, print};

const HELP: &str = "\
/help    this list
/clear   start a new conversation
/exit    leave; so does Ctrl-D
A line that ends in \\ goes on in the next one; \"\"\" begins and ends a text of several lines.
Ctrl-C ends an answer, and empties a line.
";

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
    let mut editor = DefaultEditor::new().context("opening the terminal")?;
    let history = history_file();
    if let Some(history) = &history {
        // The first chat has no history to load.
        let _ = editor.load_history(history);
    }
    eprintln!("{}; /help lists what can be typed", talk.opened.engine.describe_backend());
    loop {
        let text = match read(&mut editor)? {
            Input::Nothing => continue,
            Input::End => break,
            Input::Text(text) => text,
        };
        match text.trim() {
            "/help" => eprint!("{HELP}"),
            "/exit" => break,
            "/clear" => messages = system(),
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                eprintln!("{command} is not a command; /help lists them");
            }
            _ => {
                messages.push(Message::new("user", text));
                if !answer(talk, &mut messages)? {
                    break;
                }
            }
        }
    }
    if let Some(history) = &history
        && let Err(error) = save(&mut editor, history)
    {
        eprintln!("muser: the history could not be saved to {}: {error}", history.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers the last message and appends the answer. A message that can't be answered is taken back, and the chat goes on.
/// Returns whether it does.
fn answer(talk: &mut Talk, messages: &mut Vec<Message>) -> Result<bool> {
    clear_interrupt();
    let answered = talk.chat_tokens(messages).and_then(|tokens| talk.answer(&tokens, true));
    match answered {
        Ok((text, _, generation)) => {
            messages.push(Message::new("assistant", text));
            let go_on = print("\n")?.is_continue();
            eprintln!("{}", talk.summary(&generation));
            if generation.finish == Finish::ContextFull {
                eprintln!("muser: the context is full; /clear starts a new conversation");
            }
            Ok(go_on)
        }
        Err(error) => {
            messages.pop();
            eprintln!("muser: {error:#}");
            Ok(true)
        }
    }
}

fn read(editor: &mut DefaultEditor) -> Result<Input> {
    let mut text = String::new();
    let mut quoted = false;
    loop {
        let line = match editor.readline(if text.is_empty() && !quoted { "> " } else { ". " }) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => return Ok(Input::Nothing),
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
    editor.add_history_entry(text).context("keeping the history")?;
    Ok(Input::Text(text.to_owned()))
}

/// Where lines typed earlier are kept: `$XDG_STATE_HOME/muser/history`, else `~/.local/state/muser/history`.
fn history_file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("muser/history"))
}

fn save(editor: &mut DefaultEditor, history: &PathBuf) -> Result<()> {
    if let Some(folder) = history.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // rustyline makes the file readable by its owner only.
    Ok(editor.save_history(history)?)
}
