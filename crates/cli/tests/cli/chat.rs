//! `muser run` without a prompt, in a terminal.

use std::fs;
use std::path::Path;

use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{Running, Terminal, muser};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const UP: &str = "\x1b[A";
const ENTER: &str = "\r";

/// A chat, at its first prompt.
struct Chat {
    running: Running,
    terminal: Terminal,
}

impl Chat {
    fn start(state: &Path, args: &[&str]) -> Self {
        let call = muser(["run", "--temp", "0"]).args([model_path(SMOLLM2)]).args(args).env("XDG_STATE_HOME", state);
        let (running, terminal) = call.start_in_terminal(true);
        let mut chat = Self { running, terminal };
        chat.terminal.expect("/help lists what can be typed.");
        chat.prompt();
        chat
    }

    /// Waits for the prompt.
    fn prompt(&mut self) -> String {
        self.terminal.expect("> ")
    }

    /// Types a line.
    fn say(&mut self, line: &str) {
        self.terminal.press(&format!("{line}{ENTER}"));
    }

    /// Types a line, and returns all that is shown until the next prompt.
    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        // What is typed is shown again.
        self.terminal.expect("\n");
        self.prompt()
    }

    /// Leaves, and checks that the terminal is as it was.
    fn leave(mut self, how: &str) {
        self.terminal.press(how);
        self.running.end().expect_code(0);
        assert!(self.terminal.is_cooked(), "the terminal was left raw");
    }
}

fn state() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_second_turn_computes_only_what_is_new() {
    let state = state();
    let mut chat = Chat::start(state.path(), &["-n", "8"]);
    let first = chat.ask("Name a colour.");
    assert!(first.contains("answer 8 tokens") && !first.contains("reused"), "{first}");
    let second = chat.ask("Another one.");
    let reused = second.split(" tokens (").nth(1).and_then(|rest| rest.split(" reused)").next()).expect("a count");
    // The first prompt, and all of its answer but the last token.
    assert!(reused.parse::<usize>().expect("a number") >= 30, "{second}");
    chat.leave(CTRL_D);
}

#[test]
fn an_answer_in_the_chat_is_that_of_a_single_run() {
    let state = state();
    let expected =
        muser(["run", "--temp", "0", "-n", "8"]).args([model_path(SMOLLM2)]).args(["Name a colour."]).prints();
    let mut chat = Chat::start(state.path(), &["-n", "8"]);
    let shown = chat.ask("Name a colour.").replace('\r', "");
    assert!(shown.contains(&expected), "{shown:?} and {expected:?}");
    // A conversation that was cleared is a new one.
    assert!(!chat.ask("/clear").contains("muser:"));
    let shown = chat.ask("Name a colour.").replace('\r', "");
    assert!(shown.contains(&expected), "{shown:?} and {expected:?}");
    chat.leave("/exit\r");
}

#[test]
fn a_message_may_have_several_lines() {
    let state = state();
    let mut chat = Chat::start(state.path(), &["-n", "1"]);
    chat.say("first\\");
    chat.terminal.expect(". ");
    chat.ask("second");
    chat.say("\"\"\"");
    chat.terminal.expect(". ");
    chat.say("third\\");
    chat.terminal.expect(". ");
    chat.say("");
    chat.terminal.expect(". ");
    chat.say("fourth");
    chat.terminal.expect(". ");
    chat.ask("\"\"\"");
    chat.leave(CTRL_D);
    let history = fs::read_to_string(state.path().join("muser/history")).expect("it was saved");
    let saved: Vec<_> = history.lines().skip(1).collect();
    assert_eq!(saved, ["first\\nsecond", "third\\\\\\n\\nfourth"]);
}

#[test]
fn lines_are_remembered_from_one_chat_to_the_next() {
    let state = state();
    let mut chat = Chat::start(state.path(), &["-n", "1"]);
    chat.ask("Remember me.");
    chat.leave(CTRL_D);
    let mut chat = Chat::start(state.path(), &["-n", "1"]);
    chat.terminal.press(UP);
    chat.terminal.expect("Remember me.");
    let shown = chat.ask("");
    assert!(shown.contains("answer 1 token,"), "{shown}");
    chat.leave(CTRL_D);
}

#[test]
fn lines_typed_ahead_are_not_lost() {
    let state = state();
    let mut chat = Chat::start(state.path(), &["-n", "1"]);
    chat.terminal.press("/one\r/two\r/three\r");
    for line in ["/one", "/two", "/three"] {
        chat.terminal.expect(&format!("{line} is not a command"));
    }
    chat.prompt();
    chat.leave(CTRL_D);
}

#[test]
fn ctrl_c_ends_an_answer_and_not_the_chat() {
    let state = state();
    let mut chat = Chat::start(state.path(), &["--threads", "1"]);
    chat.say("Count from one to a thousand, in words.");
    chat.terminal.expect("\n");
    chat.terminal.expect(" ");
    // The terminal sends the signal when it is the process's own, which it is not here.
    chat.running.interrupt();
    let shown = chat.prompt();
    assert!(shown.contains(", interrupted]"), "{shown}");
    // At the prompt the key is a key, and empties the line.
    chat.terminal.press(&format!("half a line{CTRL_C}"));
    chat.terminal.expect("\n");
    chat.prompt();
    assert!(chat.ask("/help").contains("Ctrl-C ends an answer"));
    chat.leave(CTRL_D);
}

#[test]
fn a_signal_at_the_prompt_leaves_the_terminal_as_it_was() {
    let state = state();
    let mut chat = Chat::start(state.path(), &[]);
    chat.terminal.press("half a line");
    chat.terminal.expect("line");
    assert!(!chat.terminal.is_cooked(), "keys come one by one while a line is edited");
    chat.running.signal(Signal::TERM);
    chat.running.end().expect_code(128 + 15);
    assert!(chat.terminal.is_cooked(), "the terminal was left raw");
}

#[test]
fn a_conversation_that_outgrew_its_context_says_what_to_do() {
    let state = state();
    let mut chat = Chat::start(state.path(), &["--ctx", "48"]);
    let shown = chat.ask("Tell a long story.");
    assert!(shown.contains("cut because the context is full"), "{shown}");
    assert!(shown.contains("muser: the context is full; /clear starts a new conversation"), "{shown}");
    let shown = chat.ask("Go on.");
    assert!(shown.contains("the context holds 48") && shown.contains("/clear starts a new conversation"), "{shown}");
    chat.ask("/clear");
    let shown = chat.ask("Hi.");
    assert!(shown.contains("answer "), "{shown}");
    chat.leave(CTRL_D);
}

#[test]
fn a_message_that_does_not_fit_is_taken_back() {
    let state = state();
    let mut chat = Chat::start(state.path(), &["--ctx", "64", "-n", "2"]);
    assert!(chat.ask(&"word ".repeat(60)).contains("the context holds 64"));
    let shown = chat.ask("Hi.");
    assert!(shown.contains("answer 2 tokens"), "{shown}");
    chat.leave(CTRL_D);
}

#[test]
fn a_history_that_can_not_be_kept_does_not_end_the_chat() {
    let state = state();
    // Where the folder should be, there is a file.
    fs::write(state.path().join("muser"), "").expect("it can be written");
    let mut chat = Chat::start(state.path(), &["-n", "1"]);
    let shown = chat.ask("Hi.");
    assert!(shown.contains("the history can't be saved") && shown.contains("answer 1 token,"), "{shown}");
    assert!(!chat.ask("Hi again.").contains("the history can't be saved"), "it is said once");
    chat.leave(CTRL_D);
}

#[test]
fn a_chat_needs_no_home() {
    let call = muser(["run", "-n", "1"]).args([model_path(SMOLLM2)]).env_remove("HOME").env_remove("XDG_STATE_HOME");
    let (running, terminal) = call.start_in_terminal(true);
    let mut chat = Chat { running, terminal };
    chat.prompt();
    assert!(chat.ask("Hi.").contains("answer 1 token,"));
    chat.leave(CTRL_D);
}

#[test]
fn a_model_without_a_chat_template_does_not_chat() {
    let (running, mut terminal) = muser(["run"]).args([model_path(MUSE[1])]).start_in_terminal(true);
    terminal.expect("has no chat template: give a PROMPT");
    running.end().expect_code(2);
}
