#!/usr/bin/env python3
"""Drives `muser serve` with clients that others wrote: openai, langchain-openai, curl and prometheus_client.

usage: check_clients.py MUSER MODEL

The model has to have a chat template. Prints a line for each client; ends with code 1 at the first thing that is not as
it must be.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from typing import Annotated, Literal

import openai
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

KEY = "a-key-for-these-clients"
MESSAGES = [
    {"role": "system", "content": "You answer in one sentence."},
    {"role": "user", "content": "What is the capital of France?"},
]
# Longest wait for anything, on a machine that does something else as well.
TIMEOUT = 120


def check(holds, what):
    """Ends everything where something is not as it must be."""
    if not holds:
        raise AssertionError(what)


def raises(kind, call):
    """The error of this kind that the call ends with."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def check_openai(url, model):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=TIMEOUT, max_retries=0)
    check([entry.id for entry in client.models.list()] == [model], "the list of models")
    check(client.models.retrieve(model).owned_by == "muser", "one model")

    asked = {"model": model, "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 24}
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    text = whole.choices[0].message.content
    check(text and whole.choices[0].message.role == "assistant", "an answer")
    check(whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, "the usage")
    scored = whole.choices[0].logprobs.content
    check(b"".join(bytes(token.bytes) for token in scored).decode() == text, "the log-probabilities' tokens")
    check(all(token.top_logprobs[0].logprob >= token.logprob for token in scored), "the likeliest tokens")

    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    check("".join(pieces) == text, "the stream says what the whole answer says")
    check(chunks[-1].usage.completion_tokens == whole.usage.completion_tokens, "the stream's usage")
    check(chunks[-1].usage.prompt_tokens_details.cached_tokens > 0, "the prompt was known")
    with client.chat.completions.with_streaming_response.create(**asked) as reply:
        check(reply.headers["x-request-id"], "the request's id")

    stop = text.split()[2]
    cut = client.chat.completions.create(**asked, stop=[stop]).choices[0]
    check(cut.finish_reason == "stop" and cut.message.content == text[: text.index(stop)], "the stop text")
    two = client.chat.completions.create(**{**asked, "temperature": 1.5}, n=2, seed=5)
    check(two.choices[0].message.content != two.choices[1].message.content, "two choices")

    done = client.completions.create(model=model, prompt=["Once upon a time", "In the end"], max_tokens=5, logprobs=1)
    check([choice.index for choice in done.choices] == [0, 1], "completions of two prompts")
    check(len(done.choices[1].logprobs.tokens) == 5, "their log-probabilities")

    # The client asks for base64 by itself.
    asked = {"model": model, "input": ["The cat sat.", "Rates rose."]}
    packed = client.embeddings.create(**asked)
    plain = client.embeddings.create(**asked, encoding_format="float")
    check([e.embedding for e in packed.data] == [e.embedding for e in plain.data], "embeddings in both encodings")
    check(abs(sum(x * x for x in plain.data[0].embedding) - 1) < 1e-5, "their length")

    error = raises(openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=[]))
    check(error.param == "messages", "the field to blame")
    raises(openai.NotFoundError, lambda: client.chat.completions.create(model="another", messages=MESSAGES))
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="not-a-key-of-it", max_retries=0)
    raises(openai.AuthenticationError, stranger.models.list)
    return openai.__version__


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}


class Country(pydantic.BaseModel):
    """What an answer is held to."""

    capital: Annotated[str, pydantic.Field(max_length=24)]
    continent: Literal["Africa", "America", "Asia", "Europe", "Oceania"]
    neighbours: Annotated[list[Annotated[str, pydantic.Field(max_length=16)]], pydantic.Field(max_length=2)]


def check_openai_tools(url, model):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=TIMEOUT, max_retries=0)
    asked = {"model": model, "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 160}

    parsed = client.chat.completions.parse(**asked, response_format=Country).choices[0]
    check(isinstance(parsed.message.parsed, Country), "an answer of a class")
    loose = client.chat.completions.create(**asked, response_format={"type": "json_object"}).choices[0]
    check(loose.finish_reason == "length" or isinstance(json.loads(loose.message.content), dict), "an object")

    asked = {**asked, "tools": [WEATHER], "parallel_tool_calls": False}
    one = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ["required", one]:
        reply = client.chat.completions.create(**asked, tool_choice=choice).choices[0]
        check(reply.finish_reason == "tool_calls" and reply.message.content is None, "a demanded call")
        [call] = reply.message.tool_calls
        arguments = json.loads(call.function.arguments)
        check(call.function.name == "get_weather" and arguments["unit"] in ("C", "F"), "its arguments")

    with client.chat.completions.stream(**asked, tool_choice="required") as stream:
        for event in stream:
            pass
        [streamed] = stream.get_final_completion().choices[0].message.tool_calls
    check(streamed.function.arguments == call.function.arguments, "the stream calls as the whole answer does")

    told = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "7 degrees, rain"},
    ]
    free = client.chat.completions.create(**{**asked, "messages": told, "max_completion_tokens": 16}).choices[0]
    check(free.message.content or free.message.tool_calls, "an answer to a result")
    error = raises(
        openai.BadRequestError,
        lambda: client.chat.completions.create(**{**asked, "tools": [{"type": "function", "function": {"name": "a b"}}]}),
    )
    check(error.param == "tools[0].function.name", "the field to blame")


async def check_at_once(url, model):
    """Several at once get what each gets alone."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=TIMEOUT, max_retries=0) as client:

        async def ask(number):
            reply = await client.completions.create(
                model=model, prompt=f"{number}, {number + 1}, {number + 2},", max_tokens=8, temperature=0
            )
            return reply.choices[0].text

        together = await asyncio.gather(*map(ask, range(8)))
        check(together == [await ask(number) for number in range(8)], "eight at once")


def check_langchain(url, model):
    chat = ChatOpenAI(model=model, base_url=f"{url}/v1", api_key=KEY, temperature=0, max_tokens=12, timeout=TIMEOUT)
    messages = [SystemMessage("You answer in one sentence."), HumanMessage("What is the capital of Italy?")]
    whole = chat.invoke(messages)
    check(whole.content and whole.response_metadata["finish_reason"] in ("stop", "length"), "an answer")
    check(whole.usage_metadata["output_tokens"] > 0, "the usage")
    check("".join(chunk.content for chunk in chat.stream(messages)) == whole.content, "the stream")
    check(len(chat.batch([messages, messages])) == 2, "a batch")
    longer = ChatOpenAI(model=model, base_url=f"{url}/v1", api_key=KEY, temperature=0, max_tokens=160, timeout=TIMEOUT)
    called = longer.bind_tools([WEATHER], tool_choice="get_weather").invoke(messages)
    check(called.tool_calls[0]["args"]["unit"] in ("C", "F"), "a call")
    country = longer.with_structured_output(Country, method="json_schema")
    check(isinstance(country.invoke(messages), Country), "an answer of a class")
    # It would otherwise count tokens with a vocabulary that it would have to fetch.
    embeddings = OpenAIEmbeddings(
        model=model, base_url=f"{url}/v1", api_key=KEY, check_embedding_ctx_length=False, timeout=TIMEOUT
    )
    check(len(embeddings.embed_documents(["one", "two"])) == 2, "embeddings")


def check_curl(url):
    def curl(*args, body=""):
        command = ["curl", "--silent", "--show-error", "--max-time", str(TIMEOUT), *args]
        return subprocess.run(command, check=True, capture_output=True, text=True, input=body).stdout

    check(json.loads(curl("--fail", f"{url}/health")) == {"status": "ok"}, "health")
    authorised = ["--header", f"Authorization: Bearer {KEY}"]
    body = json.dumps({"messages": MESSAGES, "max_tokens": 4, "stream": True})
    stream = curl("--no-buffer", *authorised, "--data", "@-", f"{url}/v1/chat/completions", body=body)
    check(stream.endswith("data: [DONE]\n\n"), "a stream")
    # Larger than what curl sends without asking first.
    large = json.dumps({"content": "word " * 400_000})
    tokens = json.loads(curl(*authorised, "--data", "@-", f"{url}/tokenize", body=large))["tokens"]
    check(len(tokens) > 400_000, "a large body")
    status = curl("--output", os.devnull, "--write-out", "%{http_code}", "--data", "{}", f"{url}/v1/chat/completions")
    check(status == "401", "a request without a key")


def check_prometheus(url, is_first):
    headers = {"Authorization": f"Bearer {KEY}"}
    accepts = [("text/plain", parse_prometheus), ("application/openmetrics-text; version=1.0.0", parse_openmetrics)]
    for accept, parse in accepts:
        request = urllib.request.Request(f"{url}/metrics", headers={**headers, "Accept": accept})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
            families = {family.name: family for family in parse(reply.read().decode())}
        check(families["muser_queue_depth"].samples[0].value == 0, "a gauge")
        first_token = families["muser_time_to_first_token_seconds"]
        check(first_token.type == "histogram", "a histogram")
        count = next(sample.value for sample in first_token.samples if sample.name.endswith("_count"))
        check((count == 0) == is_first, "its count")


def main():
    muser, model = sys.argv[1:]
    name = os.path.splitext(os.path.basename(model))[0]
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, "keys")
        with open(os.open(keys, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(KEY + "\n")
        with open(os.path.join(folder, "log"), "w+") as log:
            server = subprocess.Popen(
                [muser, "serve", model, "--port", "0", "--slots", "4", "--ctx", "1024", "--api-key-file", keys],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            try:
                url = server.stdout.readline().strip()
                check(url.startswith("http://127.0.0.1:"), f"the server did not start, and printed {url!r}")
                check_prometheus(url, is_first=True)
                version = check_openai(url, name)
                print(f"openai {version}: models, chat, stream, log-probabilities, stops, choices, embeddings, errors")
                check_openai_tools(url, name)
                print("openai: answers of a schema, calls of functions, whole and streamed")
                asyncio.run(check_at_once(url, name))
                check_langchain(url, name)
                print("langchain-openai: chat, stream, batch, calls, answers of a schema, embeddings")
                check_curl(url)
                print("curl: health, stream, a large body, no key")
                check_prometheus(url, is_first=False)
                print("prometheus_client: both formats, from the first page on")
                server.send_signal(signal.SIGTERM)
                check(server.wait(TIMEOUT) == 0, "the server's end")
            except BaseException:
                log.seek(0)
                sys.stderr.write(log.read()[-4000:])
                raise
            finally:
                server.kill()
                server.wait()


if __name__ == "__main__":
    main()
