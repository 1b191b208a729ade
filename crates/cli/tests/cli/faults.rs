//! What goes wrong around a model: files that go away, and memory that there isn't.
//! (Files that change are in `run`, files that are bad in `bad_files`.)

use std::fs;

use muser_tests::model::{GEMMA3, MUSE, SMOLLM2};
use muser_tests::model_path;

use crate::support::{Tiny, endless, muser, muser_within};

#[test]
fn a_model_that_is_removed_or_replaced_while_it_is_used_goes_on_as_it_was() {
    let undisturbed = {
        let place = Tiny::endless().place();
        endless(&place).args(["-n", "3000"]).prints()
    };
    for replace in [false, true] {
        let place = Tiny::endless().place();
        let mut running = endless(&place).args(["-n", "3000"]).start();
        let mut text = running.some_output();
        if replace {
            let other = place.path().with_extension("other");
            fs::write(&other, b"something else").expect("it can be written");
            fs::rename(&other, place.path()).expect("it can be replaced");
        } else {
            fs::remove_file(place.path()).expect("it can be removed");
        }
        let done = running.end();
        done.expect_code(0);
        text.extend_from_slice(done.stdout.as_bytes());
        assert!(text == undisturbed.as_bytes(), "replaced: {replace}");
    }
}

#[test]
fn a_limit_below_the_plan_refuses_it_before_anything_is_allocated() {
    // Address space in kibibytes: room for the program and the weights, and for no context of that length.
    for command in ["run", "score", "bench", "plan"] {
        let call = muser_within("ulimit -v 400000", [command, "--ctx", "2000000"]).args([model_path(MUSE[1])]);
        let call = match command {
            "run" => call.args(["--raw", "hi"]),
            "score" => call.stdin("{\"ids\":[1],\"next\":[2]}\n"),
            "bench" => call.args(["-p", "8", "-n", "1"]),
            _ => call,
        };
        let line = call.fails(3);
        assert!(line.contains("address space limit leaves") && line.contains("would fit"), "{command}: {line}");
    }
}

#[test]
fn an_automatic_context_shrinks_to_the_limit_and_says_so() {
    let done =
        muser_within("ulimit -v 620000", ["run", "--raw", "-n", "1"]).args([model_path(GEMMA3)]).args(["hi"]).run();
    done.expect_code(0);
    assert!(done.stderr.contains("tokens fits into memory, of the 32768"), "{}", done.stderr);
}

#[test]
fn weights_that_can_not_be_locked_are_said_and_strictness_refuses_them() {
    let call = || muser_within("ulimit -l 64", ["run", "--raw", "-n", "1", "--resident"]).args([model_path(SMOLLM2)]);
    let done = call().args(["hi"]).run();
    done.expect_code(0);
    assert!(done.stderr.contains("bytes are locked into memory: "), "{}", done.stderr);
    let line = call().args(["--strict", "hi"]).fails(3);
    assert!(line.contains("asked for resident weights, but "), "{line}");
}

#[test]
fn a_strict_run_that_gets_what_it_asks_for_runs() {
    for load in ["map", "read", "auto"] {
        let call = muser(["run", "--raw", "-n", "1", "--strict", "--load", load]).args([model_path(MUSE[1])]);
        call.args(["hi"]).prints();
    }
}
