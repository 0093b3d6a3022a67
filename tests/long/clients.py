# SPDX-License-Identifier: MIT
"""clients.py WHAT FOLDER ...: what clients.sh asks lm_eval and guidellm, and what it makes of their answers.

    write FOLDER                       tasks/*.yaml for lm_eval, their data, samples for `pleat eval`, prompts for guidellm
    likelihoods FOLDER LOGITS MODEL    lm_eval's against those that real_logits.c's logits give
    answers FOLDER                     lm_eval's against `pleat eval`'s of the same samples
    benchmark FOLDER                   guidellm's requests
"""
import json
import math
import pathlib
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
N_WORDS = 30  # of a text: one chunk of real_logits.c
NEAR = 1e-6   # relative

LIKELIHOODS = """task: likelihoods
dataset_path: json
dataset_kwargs: {{data_files: {folder}/texts.jsonl}}
test_split: train
output_type: multiple_choice
doc_to_text: ""
doc_to_choice: "{{{{[goal, other]}}}}"
doc_to_target: 0
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
ANSWERS = """task: answers
dataset_path: json
dataset_kwargs: {{data_files: {folder}/questions.jsonl}}
test_split: train
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 32, do_sample: false, temperature: 0}}
metric_list: [{{metric: exact_match}}]
"""


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def question_of(sample):
    return sample["turns"][0]["prompt"].partition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]


def write(folder):
    words = (ROOT / "eval/prose.txt").read_text(encoding="utf-8").split()

    def some(at):
        return " ".join(words[at:at + N_WORDS])

    (folder / "tasks").mkdir()
    for name, text in (("likelihoods", LIKELIHOODS), ("answers", ANSWERS)):
        (folder / "tasks" / f"{name}.yaml").write_text(text.format(folder=folder), encoding="utf-8")
    lines(folder / "texts.jsonl", [{"goal": some(at), "other": " ".join(reversed(some(at + 5000).split()))}
                                   for at in range(4000, 6400, 300)])
    lines(folder / "prompts.jsonl", [{"prompt": some(500 * i), "output_tokens_count": 16} for i in range(12)])
    tasks = map(json.loads, (ROOT / "eval/tasks.jsonl").read_text(encoding="utf-8").splitlines())
    samples = [s for s in tasks if s["id"].startswith(("passkey-400", "few_shot"))][:24]
    for sample in samples:
        del sample["turns"][1:]
    lines(folder / "samples.jsonl", samples)
    lines(folder / "questions.jsonl",
          [{"id": s["id"], "question": question_of(s), "answer": s["turns"][0]["answer"]} for s in samples])


def samples_of(folder, task):
    (path,) = (folder / task).glob(f"**/samples_{task}_*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def log_probability(logits, token):
    most = max(logits)
    return logits[token] - most - math.log(math.fsum(math.exp(x - most) for x in logits))


def likelihood(program, model, folder, text):
    """Of all tokens behind the bos."""
    (folder / "text").write_text(text, encoding="utf-8")
    out = subprocess.run([program, model, str(folder / "text"), "64"], stdout=subprocess.PIPE, check=True).stdout
    n, n_vocab = struct.unpack_from("<II", out)
    ids = struct.unpack_from(f"<{n}i", out, 8)
    assert n < 64, n
    return math.fsum(log_probability(struct.unpack_from(f"<{n_vocab}f", out, 8 + 4 * n + 4 * n_vocab * i), ids[i + 1])
                     for i in range(n - 1))


def likelihoods(folder, program, model):
    worst, n = 0.0, 0
    for sample in samples_of(folder, "likelihoods"):
        for which, ((theirs, _),) in zip(("goal", "other"), sample["resps"]):
            ours = likelihood(program, model, folder, sample["doc"][which])
            worst, n = max(worst, abs(float(theirs) / ours - 1)), n + 1
    print(f"{n} log-likelihoods, at most {worst:.1e} apart")
    return n == 16 and worst <= NEAR


def answers(folder):
    theirs = {s["doc"]["id"]: s["resps"][0][0].strip() for s in samples_of(folder, "answers")}
    lines_of = (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    ours = {a["id"]: a["answer"].removesuffix("<|im_end|>").strip() for a in map(json.loads, lines_of)}
    other = [(i, theirs[i], ours[i]) for i in theirs if theirs[i] != ours[i]]
    print(f"{len(theirs)} answers, {len(other)} other than pleat eval's {other[:2] if other else ''}")
    return len(theirs) == 24 and theirs.keys() == ours.keys() and not other


def benchmark(folder):
    requests = json.loads((folder / "guidellm.json").read_text(encoding="utf-8"))["benchmarks"][0]["requests"]
    tokens = [r["output_tokens"] for r in requests["successful"]]
    print(f"{len(tokens)} answered, of {sorted(set(tokens))} tokens; {len(requests['errored'])} errors")
    return tokens == 12 * [16] and not requests["errored"] and not requests["incomplete"]


if __name__ == "__main__":
    folder_of = pathlib.Path(sys.argv[2])
    works = {"write": write, "likelihoods": likelihoods, "answers": answers, "benchmark": benchmark}
    sys.exit(works[sys.argv[1]](folder_of, *sys.argv[3:]) is False)
