#!/usr/bin/env python3
"""Serves a model with llama.cpp, as the package xllamacpp brings it, until standard input ends.

    llama_server.py MODEL N_THREAD N_SLOT N_CTX

Prints the address it listens on, on loopback. N_CTX is the context of each slot.
"""
import socket
import sys

model, (n_thread, n_slot, n_ctx) = sys.argv[1], map(int, sys.argv[2:])
import xllamacpp

# It takes a number and no socket, so one that was free a moment ago has to do.
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
params = xllamacpp.CommonParams()
params.model.path = model
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = n_thread
params.n_ctx, params.n_parallel, params.port = n_slot * n_ctx, n_slot, port
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
