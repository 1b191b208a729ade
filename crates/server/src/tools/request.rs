//! `tools`, `tool_choice` and `parallel_tool_calls` of a chat request.

use serde_json::{Map, Value, json};

use crate::fields::{Fields, Unknown};
use crate::reply::{ApiError, ApiResult};
use crate::structured::JsonSchema;

/// Most functions of a request.
const MAX_TOOLS: usize = 128;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// Its arguments.
    pub arguments: JsonSchema,
}

/// Whether the model calls a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// It may answer or call.
    Auto,
    /// It must call one.
    Required,
    /// It must call the one at this place of the list.
    Named(usize),
}

/// The functions of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// All of them, which the model is shown.
    pub tools: Vec<Tool>,
    /// Whether one is called.
    pub choice: ToolChoice,
    /// Whether there may be several calls in one answer.
    pub parallel: bool,
}

impl ToolUse {
    /// Takes the three fields. Nothing is returned where the model is to know of no function: without `tools`, and with
    /// `tool_choice` `none`.
    ///
    /// # Errors
    /// What of them is missing, unknown or of the wrong type.
    pub fn take(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Option<Self>> {
        let tools = take_tools(fields, unknown)?;
        let choice = take_choice(fields, &tools, unknown)?;
        let parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        Ok(choice.filter(|_| !tools.is_empty()).map(|choice| Self { tools, choice, parallel }))
    }

    /// The functions that may be called, with their places in the list.
    pub fn callable(&self) -> impl Iterator<Item = (usize, &Tool)> {
        let only = if let ToolChoice::Named(only) = self.choice { Some(only) } else { None };
        self.tools.iter().enumerate().filter(move |(index, _)| only.is_none_or(|only| only == *index))
    }

    /// The functions as templates expect them.
    pub fn definitions(&self) -> Vec<Value> {
        self.tools.iter().map(Tool::definition).collect()
    }
}

impl Tool {
    fn definition(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), json!(self.name));
        if let Some(description) = &self.description {
            function.insert("description".to_owned(), json!(description));
        }
        function.insert("parameters".to_owned(), self.arguments.value().clone());
        json!({"type": "function", "function": function})
    }
}

fn take_tools(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Vec<Tool>> {
    let path = fields.path("tools");
    let values = match fields.take("tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) if values.len() <= MAX_TOOLS => values,
        Some(other) => return Err(ApiError::out_of_range(path, &other, "an array of at most 128 functions")),
    };
    let mut tools: Vec<Tool> = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let mut item = Fields::of(format!("{path}[{index}]"), value)?;
        is_function(&mut item)?;
        let function = item.required("function", "an object")?;
        let mut function = Fields::of(item.path("function"), function)?;
        let name = function.name("name")?;
        if tools.iter().any(|tool| tool.name == name) {
            let message = format!("`{}` is {name:?} for the second time", function.path("name"));
            return Err(ApiError::invalid(function.path("name"), message));
        }
        let description = function.string("description")?;
        // Arguments are held to their schema either way.
        function.boolean("strict")?;
        let parameters = function.take("parameters");
        let arguments = JsonSchema::of_arguments(&function.path("parameters"), parameters)?;
        function.finish(unknown);
        item.finish(unknown);
        tools.push(Tool { name, description, arguments });
    }
    Ok(tools)
}

/// `None` is the choice to call nothing.
fn take_choice(fields: &mut Fields, tools: &[Tool], unknown: &mut Unknown) -> ApiResult<Option<ToolChoice>> {
    let path = fields.path("tool_choice");
    let demand = |choice| match tools {
        [] => Err(ApiError::invalid(&path, format!("`{path}` demands a call; expected `tools` with it"))),
        _ => Ok(Some(choice)),
    };
    match fields.take("tool_choice") {
        None => Ok(Some(ToolChoice::Auto)),
        Some(Value::String(choice)) => match choice.as_str() {
            "none" => Ok(None),
            "auto" => Ok(Some(ToolChoice::Auto)),
            "required" => demand(ToolChoice::Required),
            _ => {
                let expected = "\"none\", \"auto\", \"required\" or a function";
                Err(ApiError::out_of_range(path, &Value::String(choice), expected))
            }
        },
        Some(choice) => {
            let mut choice = Fields::of(&path, choice)?;
            is_function(&mut choice)?;
            let function = choice.required("function", "an object")?;
            let mut function = Fields::of(choice.path("function"), function)?;
            let name = function.name("name")?;
            let Some(index) = tools.iter().position(|tool| tool.name == name) else {
                let path = function.path("name");
                return Err(ApiError::out_of_range(path, &Value::String(name), "the name of one of the tools"));
            };
            function.finish(unknown);
            choice.finish(unknown);
            demand(ToolChoice::Named(index))
        }
    }
}

fn is_function(fields: &mut Fields) -> ApiResult<()> {
    let kind = fields.required("type", "\"function\"")?;
    if kind == "function" { Ok(()) } else { Err(ApiError::out_of_range(fields.path("type"), &kind, "\"function\"")) }
}
