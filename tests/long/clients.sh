# SPDX-License-Identifier: MIT
#
# clients.sh: clients that people have, unchanged and of pinned versions, against `pleat serve`.
#
#     openai          chats, streams, tools, logprobs, several texts (tests/cli/serve/client.py)
#     lm_eval         local-completions: log-likelihoods are those of the library's own logits, within a millionth;
#                     local-chat-completions: the answers of `pleat eval`.  Data and tasks are local (clients.py)
#     guidellm        a benchmark: every request is answered, with the tokens that were asked for
#     schemathesis    requests made up from /openapi.json: no answer that the file does not allow
#
# They come from the package index into build/clients; without it all is skipped.  Some minutes.
. "$ROOT/tests/cli/harness.bash"
. "$ROOT/tests/cli/serve/server.bash"

pins="openai==1.109.1 lm_eval[api]==0.4.13 guidellm==0.3.1 schemathesis==4.32.5 transformers==5.17.0 datasets==5.0.1"
venv=$ROOT/build/clients
if [ "$(cat "$venv/pins" 2>/dev/null)" != "$pins" ]; then
    echo "   installing $pins"
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install -q $pins; } >"$scratch/pip" 2>&1; then
        skip "all clients: they cannot be installed: $(tail -n 1 "$scratch/pip")"
        finish
        exit
    fi
    echo "$pins" >"$venv/pins"
fi
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME=$scratch/home
clients() { "$venv/bin/python" "$ROOT/tests/long/clients.py" "$@"; }
capture clients write "$scratch"
check "tasks are written" exits 0

# asked MODEL URL TASK MODEL_ARGS ARGS...: lm_eval's samples of a task, in $scratch/TASK
asked() {
    capture "$venv/bin/lm_eval" --model "$1" --model_args "model=small,base_url=$url$2,num_concurrent=4,max_retries=1$4" \
        --tasks "$3" --include_path "$scratch/tasks" --output_path "$scratch/$3" --log_samples "${@:5}"
    check "lm_eval $3" exits 0
}

start "$MODEL" --kv f32 || exit 1
capture "$venv/bin/python" "$ROOT/tests/cli/serve/client.py" "$url/v1"
check "openai" exits 0

asked local-completions /v1/completions likelihoods ,tokenizer_backend=remote,custom_prefix_token_id=0
cc -O2 -std=c17 -I"$ROOT/include" "$ROOT/tests/long/real_logits.c" "${PLEAT%/*}/libpleat.so" -Wl,-rpath,"${PLEAT%/*}" \
    -o "$scratch/logits"
capture clients likelihoods "$scratch" "$scratch/logits" "$MODEL"
echo "   $stdout"
check "likelihoods are the library's" exits 0

asked local-chat-completions /v1/chat/completions answers "" --apply_chat_template
try eval -m "$MODEL" --tasks "$scratch/samples.jsonl" --kv f32 --answers "$scratch/answers.jsonl" -q
capture clients answers "$scratch"
echo "   $stdout"
check "answers are those of pleat eval" exits 0

capture "$venv/bin/guidellm" benchmark run --target "$url" --model small --rate-type concurrent --rate 4 \
    --max-requests 12 --data "$scratch/prompts.jsonl" --data-args '{"prompt_column": "prompt"}' \
    --output-path "$scratch/guidellm.json" --disable-progress
check "guidellm" exits 0
capture clients benchmark "$scratch"
echo "   $stdout"
check "all of guidellm's requests are answered" exits 0
stop
check "the server ends well" exits 0

start "$MODEL" --kv k8v4 -c 128 || exit 1 # short, as requests may ask for all that fits
capture env -C "$scratch" "$venv/bin/st" run "$url/openapi.json" --phases fuzzing --max-examples 40 --workers 4 \
    --request-timeout 300 --exclude-path /metrics \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance
check "schemathesis" exits 0
[ "$code" = 0 ] || echo "$stdout" # whole: what failed stands in its middle
echo "   $(grep -E 'generated' <<<"$stdout")"
stop
check "and the server ends well" exits 0
finish
