//! The server, as clients find it: through the real binary, over loopback.

mod answers;
mod bits;
mod fields;
mod forms;
mod guard;
mod http;
mod life;
mod limits;
mod metrics;
mod place;
mod sessions;
mod streams;
#[path = "../cli/support/tiny.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod tiny;
mod tools;
mod wire;
