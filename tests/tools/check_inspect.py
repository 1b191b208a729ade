#!/usr/bin/env python3
"""Compare `muser inspect --json` with what the gguf package reads from the same file.

    check_inspect.py MUSER MODEL.gguf

Every key and every tensor, in order: types, element types and values of keys; types, dimensions, offsets and sizes of
tensors. Prints one line; exit 1 and the first few differences where there are any.
"""
import json, os, subprocess, sys
import gguf

muser, model = sys.argv[1:]
run = subprocess.run([muser, "inspect", "--json", model], capture_output=True, text=True)
if run.returncode:
    sys.exit(f"muser inspect failed ({run.returncode}): {run.stderr.strip()[-400:]}")
found = json.loads(run.stdout)
reader = gguf.GGUFReader(model)
differences = []

def compare(what, ours, theirs):
    # Numbers of another type are other numbers: 1, 1.0 and True are equal in Python.
    if type(ours) is not type(theirs) or ours != theirs:
        differences.append(f"{what}: {str(ours)[:80]}, the package reads {str(theirs)[:80]}")

def type_name(value_type):
    name = value_type.name.lower()
    for long, short in (("uint", "u"), ("int", "i"), ("float", "f"), ("string", "str")):
        name = name.replace(long, short)
    return name

keys = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
compare("version", found["version"], int(reader.fields["GGUF.version"].contents()))
compare("alignment", found["alignment"], int(reader.alignment))
compare("size", found["size_bytes"], os.path.getsize(model))
compare("keys", list(found["metadata"]), list(keys))
for name, field in keys.items():
    entry = found["metadata"].get(name, {})
    compare(f"type of {name}", entry.get("type"), type_name(field.types[0]))
    if field.types[0] == gguf.GGUFValueType.ARRAY:
        compare(f"element type of {name}", entry.get("elem_type"), type_name(field.types[-1]))
    ours, theirs = entry.get("value"), field.contents()
    if isinstance(theirs, list) and isinstance(ours, list):
        compare(f"length of {name}", len(ours), len(theirs))
        for index, pair in enumerate(zip(ours, theirs)):
            compare(f"{name}[{index}]", *pair)
    else:
        compare(name, ours, theirs)

compare("tensors", [tensor["name"] for tensor in found["tensors"]], [tensor.name for tensor in reader.tensors])
for ours, theirs in zip(found["tensors"], reader.tensors):
    name = theirs.name
    compare(f"type of {name}", ours["type"], theirs.tensor_type.name)
    compare(f"dimensions of {name}", ours["dims"], [int(dim) for dim in theirs.shape])
    compare(f"offset of {name}", ours["offset"], int(theirs.data_offset))
    compare(f"size of {name}", ours["size_bytes"], int(theirs.n_bytes))

if not keys or not reader.tensors:
    differences.append("the package reads no keys or no tensors")
facts = f"{len(keys)} keys and {len(reader.tensors)} tensors"
if differences:
    print(f"{len(differences)} differences in {facts}: " + "; ".join(differences[:3]))
    sys.exit(1)
print(f"{facts} are as the gguf package reads them")
