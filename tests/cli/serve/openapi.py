# SPDX-License-Identifier: MIT
"""openapi.py FILE SOURCES: does /openapi.json say what the code does?  Its paths and methods against the router's table,
its requests' fields against those that params.c reads, and every reference leads somewhere."""
import json
import re
import sys

text = open(sys.argv[1]).read()
document, sources = json.loads(text), sys.argv[2]
routes = {(m.lower(), p) for m, p in re.findall(r'{"(GET|POST)", "([^"]+)", \w+, \w+}', open(sources + "/routes.c").read())}
described = {(method, path) for path, item in document["paths"].items() for method in item}
assert routes == described and len(routes) > 10, routes ^ described

for reference in re.findall(r'"\$ref": "#/([^"]+)"', text):
    found = document
    for part in reference.split("/"):
        found = found[part]

code = open(sources + "/params.c").read()
read = set(re.findall(r'(?:read_\w+|given|json_object_get)\(body, "(\w+)"', code)) | {"include_usage"}
fields = {"include_usage"}
for name in ("ChatRequest", "CompletionRequest"):
    fields |= set(document["components"]["schemas"][name]["properties"])
assert read == fields, read ^ fields
