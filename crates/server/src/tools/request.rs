//! `tools`, `tool_choice` and `parallel_tool_calls` of a chat request.

use serde_json::{Map, Value, json};

use crate::FieldError;
use crate::structured::{JsonSchema, is_name};

/// Most functions of a request.
pub const MAX_TOOLS: usize = 128;

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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Reads the three fields. Nothing is returned where the model is to know of no function: without `tools`, and with
    /// `tool_choice` `none`.
    ///
    /// # Errors
    ///
    /// What is missing, unknown or of the wrong type, by field.
    pub fn parse(
        tools: Option<&Value>,
        tool_choice: Option<&Value>,
        parallel: Option<&Value>,
    ) -> Result<Option<Self>, FieldError> {
        let [tools, tool_choice, parallel] = [tools, tool_choice, parallel].map(|it| it.filter(|it| !it.is_null()));
        let tools = tools.map_or(Ok(Vec::new()), parse_tools)?;
        let choice = parse_choice(tool_choice, &tools)?;
        let parallel = match parallel {
            None => true,
            Some(Value::Bool(parallel)) => *parallel,
            Some(_) => return Err(FieldError::new("parallel_tool_calls", "must be true or false")),
        };
        Ok(choice.filter(|_| !tools.is_empty()).map(|choice| Self { tools, choice, parallel }))
    }

    /// The functions that may be called, with their places in the list.
    pub(super) fn callable(&self) -> impl Iterator<Item = (usize, &Tool)> {
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

fn parse_tools(tools: &Value) -> Result<Vec<Tool>, FieldError> {
    let Some(items) = tools.as_array().filter(|items| (1..=MAX_TOOLS).contains(&items.len())) else {
        return Err(FieldError::new("tools", format!("must be an array of 1 to {MAX_TOOLS} functions")));
    };
    let mut tools: Vec<Tool> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let param = |name: &str| format!("tools[{index}]{name}");
        let ty = item.get("type").unwrap_or(&Value::Null);
        if ty != "function" {
            return Err(FieldError::new(param(".type"), format!("is {ty}; must be \"function\"")));
        }
        let Some(function) = item.get("function").and_then(Value::as_object) else {
            return Err(FieldError::new(param(".function"), "must be an object"));
        };
        let name = function.get("name").and_then(Value::as_str).filter(|name| is_name(name));
        let Some(name) = name else {
            let message = "must be 1 to 64 letters, digits, underscores or dashes";
            return Err(FieldError::new(param(".function.name"), message));
        };
        if tools.iter().any(|tool| tool.name == name) {
            return Err(FieldError::new(param(".function.name"), format!("{name:?} is there twice")));
        }
        let description = match function.get("description") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err(FieldError::new(param(".function.description"), "must be a string")),
        };
        if function.get("strict").is_some_and(|strict| !strict.is_null() && !strict.is_boolean()) {
            return Err(FieldError::new(param(".function.strict"), "must be true or false"));
        }
        let arguments = JsonSchema::of_arguments(function.get("parameters"))
            .map_err(|message| FieldError::new(param(".function.parameters"), message))?;
        tools.push(Tool { name: name.to_owned(), description, arguments });
    }
    Ok(tools)
}

/// `None` is the choice to call nothing.
fn parse_choice(choice: Option<&Value>, tools: &[Tool]) -> Result<Option<ToolChoice>, FieldError> {
    const PARAM: &str = "tool_choice";
    let demand = |choice| match tools {
        [] => Err(FieldError::new(PARAM, "demands a call, but there are no tools")),
        _ => Ok(Some(choice)),
    };
    let Some(choice) = choice else { return Ok(Some(ToolChoice::Auto)) };
    match choice.as_str() {
        Some("none") => return Ok(None),
        Some("auto") => return Ok(Some(ToolChoice::Auto)),
        Some("required") => return demand(ToolChoice::Required),
        _ => {}
    }
    let expected = "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": …}}";
    let name = choice.pointer("/function/name").and_then(Value::as_str);
    let Some(name) = name.filter(|_| choice.get("type").is_some_and(|ty| ty == "function")) else {
        return Err(FieldError::new(PARAM, expected));
    };
    match tools.iter().position(|tool| tool.name == name) {
        Some(index) => demand(ToolChoice::Named(index)),
        None => Err(FieldError::new("tool_choice.function.name", format!("{name:?} is not one of the tools"))),
    }
}
