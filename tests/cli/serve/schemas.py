# SPDX-License-Identifier: MIT
"""schemas.py PORT N: N answers under random JSON schemas, greedy and drawn, 16 at a time, from a server whose model knows
nothing of JSON.  Each that ends by itself has to have its schema, by the check below and by the package jsonschema where there
is one; one that is cut off by its length tells nothing.  Prints how many of both.
"""
import asyncio
import json
import random
import sys

from asking import Failed, Host

try:
    import jsonschema
except ImportError:
    jsonschema = None

NAMES = ("day", "days", "name", "a\"b", "Größe", "x")
VALUES = ("red", "green", "", 1, 12, 1.5, -3, True, None, [1, 2], {"a": "b"}, "\n")


def random_schema(rng, depth=0, kind=None):
    kind = kind or rng.choice(("string", "integer", "number", "boolean", "null", "enum", "const", "ref",
                               *(("object", "object", "array", "anyOf", "types") if depth < 3 else ())))
    if kind == "enum":
        return {"enum": rng.sample(VALUES, rng.randrange(1, 5))}
    if kind == "const":
        return {"const": rng.choice(VALUES)}
    if kind == "ref":
        return {"$ref": "#/$defs/" + rng.choice(("word", "tree"))}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randrange(1, 4))]}
    if kind == "types":
        return {"type": rng.sample(("string", "integer", "boolean", "null"), 2), "description": "either"}
    if kind == "array":
        least = rng.randrange(3)
        return {"type": "array", "items": random_schema(rng, depth + 1), "minItems": least, "maxItems": least + rng.randrange(3)}
    if kind != "object":
        return {"type": kind}
    names = rng.sample(NAMES, rng.randrange(1, 5))
    schema = {"type": "object", "properties": {name: random_schema(rng, depth + 1) for name in names},
              "required": [name for name in names if rng.random() < 0.7]}
    if rng.random() < 0.6:
        schema["additionalProperties"] = rng.random() < 0.2 and random_schema(rng, 3)
    return schema


def with_defs(schema):
    tree = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
            "required": ["v"], "additionalProperties": False}
    return {**schema, "$defs": {"word": {"type": "string", "enum": ["sea", "seaside", "land"]}, "tree": tree}}


def is_type(value, name):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"object": isinstance(value, dict), "array": isinstance(value, list), "string": isinstance(value, str), "number": number,
            "integer": number and value % 1 == 0, "boolean": isinstance(value, bool), "null": value is None}[name]


def same(a, b):
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def has(value, schema, root):
    """Has the value the schema?  What schemas.py makes, and no more."""
    if "$ref" in schema:
        return has(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return any(has(value, one, root) for one in schema["anyOf"])
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None and not any(same(value, one) for one in values):
        return False
    types = schema.get("type", [])
    if types and not any(is_type(value, name) for name in ([types] if isinstance(types, str) else types)):
        return False
    if isinstance(value, list) and "items" in schema:
        return schema["minItems"] <= len(value) <= schema["maxItems"] and all(has(one, schema["items"], root) for one in value)
    if isinstance(value, dict) and "properties" in schema:
        rest = schema.get("additionalProperties", {})
        its = {name: schema["properties"].get(name, rest) for name in value}
        return set(schema["required"]) <= set(value) and all(s is not False and has(value[name], s, root) for name, s in its.items())
    return True


def judge(text, schema):
    value = json.loads(text)
    if not has(value, schema, schema):
        raise Failed(f"{text} is not of {json.dumps(schema)}")
    if jsonschema:
        jsonschema.validate(value, schema)


async def closers(host):
    """Biases for what ends strings, lists and objects, and against blanks, so that most answers end."""
    biases = {}
    for text in ('"', "}", "]", ",", *(blank * n for blank in " \n\t" for n in range(1, 20))):
        _, answer = await host.ask("/tokenize", {"prompt": text, "add_special_tokens": False})
        for token in answer["tokens"]:
            biases[str(token)] = 3 if text == "," else -9 if text.isspace() else 9
    return biases


async def ask(host, i, bias, counts):
    rng = random.Random(i)
    schema = with_defs(random_schema(rng, 0, "object"))
    body = {"messages": [{"role": "user", "content": rng.choice(("The sea", "A list of days:", "Once"))}], "seed": i,
            "temperature": (0, 0.7, 1, 2)[i % 4], "max_tokens": 100, "logit_bias": bias,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}}
    status, answer = await host.ask("/v1/chat/completions", body)
    if status != 200:
        raise Failed(f"{status} {answer} of {json.dumps(schema)}")
    choice = answer["choices"][0]
    counts[choice["finish_reason"]] = counts.get(choice["finish_reason"], 0) + 1
    if choice["finish_reason"] == "stop":
        judge(choice["message"]["content"], schema)


async def main():
    host, n, counts = Host(int(sys.argv[1])), int(sys.argv[2]), {}
    numbers, bias = iter(range(n)), await closers(host)

    async def some():
        for i in numbers:
            await ask(host, i, bias, counts)

    await asyncio.gather(*(some() for _ in range(16)))
    print(f"{counts.get('stop', 0)} whole, {counts.get('length', 0)} cut off by their length; jsonschema: {'yes' if jsonschema else 'no'}")
    if 2 * counts.get("stop", 0) < n:
        raise Failed("too few are whole")


asyncio.run(main())
