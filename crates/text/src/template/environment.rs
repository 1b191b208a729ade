//! The engine as chat templates expect it, and its limits.

use std::{error::Error as StdError, fmt, io};

use minijinja::{
    Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters,
    syntax::SyntaxConfig,
    value::{ObjectRepr, ValueKind, ValueOrKwargs},
};

use super::{
    MAX_VALUE_DEPTH, TemplateError,
    json::tojson,
    scan::KEEP,
    strftime::DateTime,
    strings::{self, changing_case},
};

/// The one template's name.
pub(super) const NAME: &str = "chat_template";
/// Where a rendering finds its disguise; not a name that a template can spell.
pub(super) const DISGUISE: &str = "\0disguise";

/// Stack of the threads that compile and render. The engine recurses over expressions and values; with the limits of
/// [`super::scan`] and [`MAX_VALUE_DEPTH`] the worst case takes a tenth of this. Pages never touched cost nothing.
const STACK_BYTES: usize = 64 << 20;

/// Runs `work` on a stack of known size, whatever the caller's is.
///
/// # Errors
///
/// [`TemplateError::Thread`] when the system gives no thread.
pub(super) fn on_own_stack<T: Send>(
    work: impl FnOnce() -> Result<T, TemplateError> + Send,
) -> Result<T, TemplateError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("chat-template".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(TemplateError::Thread)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Steps for looking at one item of a kept value.
const ITEM_FUEL: u64 = 8;

/// Bytes of a kept text for a step. With the 64 that the engine charges for copying, a text that doubles itself ends near
/// ten megabytes.
const KEPT_BYTES_PER_STEP: u64 = 16;

/// Why the host stopped a rendering; travels as the source of an engine error.
#[derive(Debug)]
enum Stop {
    Raised(String),
    TooDeep,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Raised(message) => f.write_str(message),
            Stop::TooDeep => write!(f, "a value nests more than {MAX_VALUE_DEPTH} deep"),
        }
    }
}

impl StdError for Stop {}

pub(super) fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, Stop::TooDeep.to_string()).with_source(Stop::TooDeep)
}

/// Charges the rendering's fuel for a call that works on `size_bytes` of text. Character by character is slower than the
/// 64 bytes a step that the engine charges for copying.
pub(super) fn charge(state: &State<'_, '_>, size_bytes: usize) -> Result<(), Error> {
    state.consume_fuel(4 + size_bytes as u64 / 8)
}

/// An environment that holds `source`, already scanned, under [`NAME`].
pub(super) fn environment(source: String) -> Result<Environment<'static>, TemplateError> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.map_err(|error| template_error(&error, Limits::default()))?);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(strings::call_method);
    env.add_function("raise_exception", raise_exception);
    env.add_function("namespace", namespace);
    env.add_function(KEEP, keep);
    env.add_filter("tojson", tojson);
    env.add_filter("trim", strings::trim);
    env.add_filter("replace", strings::replace_filter);
    env.add_filter("length", strings::length);
    env.add_filter("count", strings::length);
    env.add_filter("indent", strings::indent);
    env.add_filter("upper", changing_case(filters::upper));
    env.add_filter("lower", changing_case(filters::lower));
    env.add_filter("capitalize", changing_case(filters::capitalize));
    env.add_filter("title", changing_case(|text| Value::from(filters::title(text.as_str().into()))));
    env.add_template_owned(NAME, source).map_err(|error| template_error(&error, Limits::default()))?;
    Ok(env)
}

/// Gives the template a clock that stands at `now`.
pub(super) fn set_clock(env: &mut Environment<'_>, now: DateTime) {
    env.add_function("strftime_now", move |format: &str| {
        now.strftime(format).map_err(|conversion| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now doesn't know the conversion {conversion:?}"))
        })
    });
}

fn raise_exception(state: &State<'_, '_>, message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    let message = match strings::disguise(state) {
        Some(disguise) => disguise.reveal(&message).iter().map(|(c, _)| *c).collect(),
        None => message,
    };
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Stop::Raised(message)))
}

fn namespace(state: &State<'_, '_>, defaults: Option<ValueOrKwargs>) -> Result<Value, Error> {
    if let Some(defaults) = &defaults {
        check_kept(state, defaults, true, 0)?;
    }
    minijinja::functions::namespace(defaults)
}

/// Passes an assigned value through, unless it nests too deep or puts a namespace into something.
///
/// Scopes end with each turn of a loop, so values can grow by assignment only, and only a namespace could come to hold
/// itself. With this, what the engine does by recursion (print, compare, drop) is bounded.
fn keep(state: &State<'_, '_>, value: Value, to_name: bool) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        state.consume_fuel(text.len() as u64 / KEPT_BYTES_PER_STEP)?;
    }
    check_kept(state, &value, to_name, 0)?;
    Ok(value)
}

fn check_kept(state: &State<'_, '_>, value: &Value, to_name: bool, depth: usize) -> Result<(), Error> {
    let Some(object) = value.as_object() else { return Ok(()) };
    if depth > MAX_VALUE_DEPTH {
        return Err(too_deep());
    }
    if object.type_name().ends_with("Namespace") {
        return if to_name && depth == 0 {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::InvalidOperation, "a namespace can't be kept inside another value"))
        };
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    if object.repr() == ObjectRepr::Map {
        for (_, item) in object.try_iter_pairs().into_iter().flatten() {
            state.consume_fuel(ITEM_FUEL)?;
            check_kept(state, &item, to_name, depth + 1)?;
        }
    } else {
        for item in object.try_iter().into_iter().flatten() {
            state.consume_fuel(ITEM_FUEL)?;
            check_kept(state, &item, to_name, depth + 1)?;
        }
    }
    Ok(())
}

/// What an engine error means to the caller.
pub(super) fn template_error(error: &Error, limits: Limits) -> TemplateError {
    let line = error.line();
    let mut kind = error.kind();
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    // The engine wraps errors of blocks and macros; the innermost is the reason.
    while let Some(inner) = cause {
        if let Some(stop) = inner.downcast_ref::<Stop>() {
            return match stop {
                Stop::Raised(message) => TemplateError::Raised { message: message.clone() },
                Stop::TooDeep => TemplateError::ValueTooDeep { max: MAX_VALUE_DEPTH },
            };
        }
        kind = inner.downcast_ref::<Error>().map_or(kind, Error::kind);
        cause = inner.source();
    }
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match kind {
        ErrorKind::WriteFailure => TemplateError::OutputTooLong { max: limits.output_bytes },
        ErrorKind::OutOfFuel => TemplateError::OutOfSteps { max: limits.fuel },
        ErrorKind::SyntaxError | ErrorKind::BadEscape => TemplateError::Syntax { message, line },
        ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction | ErrorKind::UnknownMethod => {
            TemplateError::Unknown { message, line }
        }
        _ => TemplateError::Render { message, line },
    }
}

/// What one rendering may take.
#[derive(Clone, Copy, Default)]
pub(super) struct Limits {
    /// Steps.
    pub(super) fuel: u64,
    /// Bytes of text.
    pub(super) output_bytes: usize,
}

/// Renders the one template of `env` with `context` within `limits`; its text is up to so many times `longer`.
pub(super) fn render(
    env: &mut Environment<'_>,
    context: Value,
    limits: Limits,
    longer: usize,
) -> Result<String, TemplateError> {
    env.set_fuel(Some(limits.fuel));
    let template = env.get_template(NAME).map_err(|error| template_error(&error, limits))?;
    let mut output = Bounded { bytes: Vec::new(), max_bytes: longer * limits.output_bytes };
    template.render_captured_to(context, &mut output).map_err(|error| template_error(&error, limits))?;
    // The engine writes whole strings, so this is UTF-8.
    String::from_utf8(output.bytes).map_err(|error| TemplateError::Render { message: error.to_string(), line: None })
}

/// Collects output; full at the limit, and the only writer here that can fail.
struct Bounded {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
