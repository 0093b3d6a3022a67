# SPDX-License-Identifier: MIT
"""replicas.py: conversations of several turns through replicas that share a store, by deploy/replicas.py.

    replicas.py hits PLEAT MODEL ROUTER...   prompt tokens that were there, of all asked for, beside one server with all pools in one;
                                             ROUTER: sglang, vllm, or none: the test asks the replicas in turn
    replicas.py kill PLEAT MODEL ROUTER      one replica is killed among requests: who was being answered may fail, nobody else

Prints a row of Markdown for each; fails where there are less than 0.95 of the one server's.
"""
import concurrent.futures
import http.client
import json
import os
import random
import signal
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "deploy"))
import replicas as deploy  # noqa: E402

CONVERSATIONS, TURNS, AT_ONCE, WORDS, ANSWER = 10, 3, 2, 150, 8
POOL_MIB = 12  # of a replica: three conversations or so


def chat(url, messages, n_tokens=ANSWER, key="k"):
    """(answer, prompt tokens, cached tokens)"""
    body = {"model": "model", "messages": messages, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True,
            "prompt_cache_key": key}
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise OSError(f"{answer.status} {text[:200]!r}")
        said = json.loads(text)
        usage = said["usage"]
        return (said["choices"][0]["message"]["content"], usage["prompt_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"])
    finally:
        connection.close()


def question(rng, words):
    return " ".join(rng.choice(words) for _ in range(WORDS))


def converse(address_of, words):
    """All conversations, turn by turn, AT_ONCE at once, in another order each turn: (prompt tokens, cached tokens, all answers)."""
    rng = random.Random(7)
    talks = [[] for _ in range(CONVERSATIONS)]
    n_prompt = n_cached = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(TURNS):
            order = list(range(CONVERSATIONS))
            rng.shuffle(order)
            for i in range(CONVERSATIONS):
                talks[i].append({"role": "user", "content": question(rng, words)})
            answers = list(pool.map(lambda i: chat(address_of(), talks[i]), order))
            for i, (text, n, cached) in zip(order, answers):
                talks[i].append({"role": "assistant", "content": text})
                n_prompt += n
                n_cached += cached
    return n_prompt, n_cached, talks


def setup_of(pleat, model, n, router, store=None, pool=POOL_MIB):
    words = ["-m", model, "--pleat", pleat, "--replicas", str(n), "--router", router]
    words += [] if store is None else ["--store", store]
    return deploy.Setup(deploy.options(words + ["--", "-c", "2048", "-np", "4", "-t", "1", "--pool-bytes", f"{pool}MiB"]))


def hits(pleat, model, routers):
    words = open(os.path.join(ROOT, "eval", "prose.txt"), encoding="utf-8").read().split()
    print("| replicas | router | store | prompt tokens | cached | of one server's |\n|---|---|---|---|---|---|", flush=True)
    with setup_of(pleat, model, 1, "none", "", 4 * POOL_MIB) as one:
        n_prompt, n_one, talks = converse(lambda: one.replicas[0].url, words)
    print(f"| 1 | | | {n_prompt} | {n_one} | 1 |", flush=True)
    bad = []
    for n in (2, 4):
        for router in routers:
            for store in (None, "") if n == 4 else (None,):
                with setup_of(pleat, model, n, router, store) as setup:
                    turn = iter(range(1 << 30))
                    where = (lambda: setup.url) if setup.url else (lambda: setup.replicas[next(turn) % n].url)
                    n_prompt, n_cached, said = converse(where, words)
                share = n_cached / n_one
                print(f"| {n} | {router if router != 'none' else 'in turn'} | {'redis' if store is None else 'none'} | "
                      f"{n_prompt} | {n_cached} | {share:.3f} |", flush=True)
                if store is None and share < 0.95:
                    bad.append(f"{n} replicas, {router}: {share:.3f}")
                if said != talks:
                    bad.append(f"{n} replicas, {router}: other answers")
    if bad:
        sys.exit("; ".join(bad))


def kill(pleat, model, router):
    words = open(os.path.join(ROOT, "eval", "prose.txt"), encoding="utf-8").read().split()
    lock, failed, n_good = threading.Lock(), {}, [0]
    in_flight = set()

    def one(i):
        rng = random.Random(i)
        with lock:
            in_flight.add(i)
        try:
            chat(setup.url, [{"role": "user", "content": question(rng, words)}], 48)
            with lock:
                n_good[0] += 1
        except (OSError, http.client.HTTPException, ValueError) as error:
            with lock:
                failed[i] = str(error)
        finally:
            with lock:
                in_flight.discard(i)

    with setup_of(pleat, model, 4, router) as setup, concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = [pool.submit(one, i) for i in range(64)]
        while sum(f.done() for f in done) < 16:
            time.sleep(0.01)
        with lock:
            at = set(in_flight)
            os.kill(setup.replicas[1].process.pid, signal.SIGKILL)
        for f in done:
            f.result()
    lost = {i: why for i, why in failed.items() if i not in at}
    print(f"| {router} | 64 | {n_good[0]} | {len(at)} | {len(failed)} | {len(lost)} |", flush=True)
    if lost:
        sys.exit(f"lost: {lost}")


if __name__ == "__main__":
    if sys.argv[1] == "hits":
        hits(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        kill(*sys.argv[2:5])
