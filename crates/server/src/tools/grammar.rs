//! The grammar of an answer that calls functions, or may.

use serde_json::json;

use super::format::{HERMES_CLOSE, HERMES_OPEN, MISTRAL_ARGUMENTS, MISTRAL_OPEN, PYTHON_TAG};
use super::{Dialect, Tool, ToolChoice, ToolFormat, ToolUse};
use crate::reply::{ApiError, ApiResult};
use crate::structured::{
    Grammar, GrammarConstraint, GrammarError, Grammars, JsonSchema, SCHEMA_PARAM, escape, literal, regex, token,
};

/// Most calls of one answer, so that a model that can't stop does.
const MAX_CALLS: usize = 16;

/// Any text.
const ANY: &str = "(?s:.*)";

impl Dialect {
    /// Compiles the grammar of an answer.
    ///
    /// Where a call is demanded, the answer is one or more calls. Where the model may choose, it is text, or of the schema
    /// `content` if there is one, and calls may end it: from a call's first mark on, the answer is held to the call's form.
    ///
    /// # Errors
    ///
    /// What of the request can't be done, by field.
    pub fn compile(
        &self,
        grammars: &Grammars,
        tools: &ToolUse,
        content: Option<&JsonSchema>,
    ) -> ApiResult<GrammarConstraint> {
        let grammar = match tools.choice {
            ToolChoice::Auto => self.auto(tools, content)?,
            ToolChoice::Required | ToolChoice::Named(_) => self.demanded(tools),
        };
        grammars.compile(&grammar).map_err(|error| blame(grammars, tools, content, &error))
    }

    fn demanded(&self, tools: &ToolUse) -> Grammar {
        let mut grammar = Grammar::default();
        grammar.rule("start", &self.calls(tools));
        self.rules(&mut grammar, tools);
        grammar
    }

    fn auto(&self, tools: &ToolUse, content: Option<&JsonSchema>) -> ApiResult<Grammar> {
        let mut grammar = Grammar::default();
        let calls = self.calls(tools);
        match (self.format, content) {
            (ToolFormat::Generic, _) => {
                let expected = "\"none\", \"required\" or a function: the model's chat template knows no form of calls that \
                                answers could be told from";
                return Err(ApiError::unsupported("tool_choice", &json!("auto"), expected));
            }
            (ToolFormat::Llama, Some(schema)) => {
                let expected = "text where `tool_choice` is \"auto\": this model's calls are JSON too";
                return Err(ApiError::unsupported("response_format", schema.value(), expected));
            }
            (ToolFormat::Llama, None) => {
                // Text is all that does not begin like a call.
                let heads: Vec<String> = tools.callable().map(|(_, tool)| llama_head(tool)).collect();
                let head = format!("[ \\n]{{0,4}}({})", heads.join("|"));
                grammar.rule("start", &format!("TEXT | {calls}"));
                grammar.rule("TEXT", &format!("{} & ~{}", regex(ANY), regex(&format!("{head}{ANY}"))));
            }
            (_, Some(schema)) => {
                let value = grammar.json(schema);
                grammar.rule("start", &format!("content | {calls}"));
                grammar.rule("content", &value);
            }
            (format, None) => {
                let trigger = format.trigger().unwrap_or_default();
                if self.mark(trigger).is_some() {
                    grammar.rule("start", &format!("text | text {calls} | {calls}"));
                } else {
                    // The shortest text that ends with the trigger; with any longer one the call goes on.
                    let behind = self.calls_behind(tools, "");
                    grammar.rule("start", &format!("text | lead {behind}"));
                    grammar.rule("lead[lazy]", &regex(&format!("{ANY}{}", escape(trigger))));
                }
                grammar.rule("text", &regex(ANY));
            }
        }
        self.rules(&mut grammar, tools);
        Ok(grammar)
    }

    /// All calls of an answer.
    fn calls(&self, tools: &ToolUse) -> String {
        match self.format {
            ToolFormat::Generic => "call".to_owned(),
            ToolFormat::Llama => match self.mark(PYTHON_TAG) {
                Some(id) => format!("{}? call", token(id)),
                None => "call".to_owned(),
            },
            format => {
                let trigger = self.sign(format.trigger().unwrap_or_default());
                self.calls_behind(tools, &trigger)
            }
        }
    }

    /// All calls of an answer in a format with a trigger, which is put before the first.
    fn calls_behind(&self, tools: &ToolUse, trigger: &str) -> String {
        let more = |separator: &str| match MAX_CALLS - 1 {
            n if tools.parallel && self.format.is_parallel() => format!("({separator} call){{0,{n}}}"),
            _ => String::new(),
        };
        match self.format {
            ToolFormat::Hermes => {
                let next = format!("{} {}", literal("\n"), self.sign(HERMES_OPEN));
                format!("{trigger} call {}", more(&next))
            }
            ToolFormat::Mistral => {
                format!("{trigger} {} call {} {}", regex(" ?\\["), more(&regex(", ?")), literal("]"))
            }
            _ => format!("{trigger} call {}", more(&self.sign(MISTRAL_OPEN))),
        }
    }

    /// The rule `call`, from behind the trigger on, and one for each function.
    fn rules(&self, grammar: &mut Grammar, tools: &ToolUse) {
        let names: Vec<String> = tools.callable().map(|(index, _)| format!("f{index}")).collect();
        let any = format!("({})", names.join(" | "));
        let call = match self.format {
            ToolFormat::Hermes => {
                format!("{} {any} {} {}", literal("\n"), literal("\n"), self.sign(HERMES_CLOSE))
            }
            _ => any,
        };
        grammar.rule("call", &call);
        for (index, tool) in tools.callable() {
            let arguments = grammar.json(&tool.arguments);
            let body = match self.format {
                ToolFormat::MistralNamed => {
                    format!("{} {} {arguments}", literal(&tool.name), self.sign(MISTRAL_ARGUMENTS))
                }
                ToolFormat::Llama => format!("{} {arguments} {}", regex(&llama_head(tool)), literal("}")),
                _ => {
                    let head = format!("{{\"name\": \"{}\", \"arguments\": ", tool.name);
                    format!("{} {arguments} {}", literal(&head), literal("}"))
                }
            };
            grammar.rule(&format!("f{index}"), &body);
        }
    }

    /// A mark of the format, be it text or a control token.
    fn sign(&self, mark: &str) -> String {
        self.mark(mark).map_or_else(|| literal(mark), token)
    }
}

/// What a call in Llama's format begins with. The model is free in how it spaces it, and some models name its type.
fn llama_head(tool: &Tool) -> String {
    let space = "[ \\n]{0,4}";
    let colon = format!("{space}:{space}");
    let ty = format!("(\"type\"{colon}\"function\"{space},{space})?");
    let name = escape(&tool.name);
    format!("\\{{{space}{ty}\"name\"{colon}\"{name}\"{space},{space}\"parameters\"{colon}")
}

/// Finds the field that a grammar could not be compiled for.
fn blame(grammars: &Grammars, tools: &ToolUse, content: Option<&JsonSchema>, error: &GrammarError) -> ApiError {
    if matches!(error, GrammarError::TooSlow { .. } | GrammarError::Busy) {
        // Trying them one by one would take as long for each.
        return error.reply("tools");
    }
    let parameters =
        tools.callable().map(|(index, tool)| (format!("tools[{index}].function.parameters"), &tool.arguments));
    let schemas = parameters.chain(content.map(|schema| (SCHEMA_PARAM.to_owned(), schema)));
    for (param, schema) in schemas {
        if let Err(error) = grammars.compile(&Grammar::of_json(schema)) {
            return error.reply(&param);
        }
    }
    error.reply("tools")
}
