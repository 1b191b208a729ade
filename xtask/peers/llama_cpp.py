#!/usr/bin/env python3
"""Times llama.cpp, as the package xllamacpp brings it: one prompt and one answer.

    llama_cpp.py MODEL N_THREAD N_PROMPT N_ANSWER N_CTX

A context of 0 is as long as the model was trained for, which is llama.cpp's own choice. Prints one line of JSON. Its own
log goes to standard error. The prompt is token ids without meaning, the answer takes the likeliest token each time and
goes on after an end. The first token is that of another request before, of one token, on a server that has not warmed up;
what Python took to start is in neither its time nor the peak.
"""
import json
import sys
import time


def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field + ":"))


model, (n_thread, n_prompt, n_answer, n_ctx) = sys.argv[1], map(int, sys.argv[2:])
import xllamacpp

before, started = resident("VmRSS"), time.monotonic()
params = xllamacpp.CommonParams()
params.model.path = model
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = n_thread
params.n_ctx, params.n_parallel, params.warmup = n_ctx, 1, False
server = xllamacpp.Server(params)


def complete(ids, n):
    request = {"prompt": ids, "n_predict": n, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    answer = server.handle_completions(request)
    return json.loads(answer) if isinstance(answer, (bytes, str)) else answer


complete([1], 1)
first = time.monotonic() - started
timings = complete([(index * 7919 + 1) % 32000 for index in range(n_prompt)], n_answer)["timings"]
assert (timings["prompt_n"], timings["predicted_n"]) == (n_prompt, n_answer), timings
print(json.dumps({
    "prefill": timings["prompt_per_second"],
    "decode": timings["predicted_per_second"],
    "first_token_seconds": first,
    "peak_bytes": resident("VmHWM") - before,
}))
