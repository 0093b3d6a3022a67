#!/bin/bash
# SPDX-License-Identifier: MIT
#
# report.sh: `pleat eval --report`: the page is whole, stands alone and shows eval's own figures; a path that cannot be
# written is refused before the work, and a failed run leaves the old page as it was.
. "$(dirname "$0")/harness.bash"
TASKS=$ROOT/eval/tasks.jsonl
page=$scratch/page.html

# in REGEX: a line of the page matches
in_page() { grep -Eq -- "$1" "$page"; }
lacks() { ! in_page "$1"; }
count() { grep -Eo -- "$1" "$page" | wc -l; }

# Tags that open and close in order, and nothing fetched or run.
is_html() {
    python3 - "$page" <<'EOF'
import sys
from html.parser import HTMLParser

class Checker(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.bad = [], []
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "wbr"):
            self.open.append(tag)
        if tag in ("script", "link", "img", "iframe", "object", "embed", "base", "form"):
            self.bad.append(tag)
        self.bad += [k for k, v in attrs if k.startswith("on") or k in ("src", "href", "xlink:href")]
        if any(v and ("nan" in v or "inf" in v) for k, v in attrs if k in ("d", "x", "y", "cx", "cy", "width", "height")):
            self.bad.append("a number that is none: " + tag)
    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag != "meta":
            self.open.pop()
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append("/" + tag)

checker = Checker()
checker.feed(open(sys.argv[1], encoding="utf-8", errors="strict").read())
if checker.bad or checker.open:
    print(checker.bad, checker.open)
    sys.exit(1)
EOF
}
check_page() {
    if command -v python3 >/dev/null; then
        check "$1 is well-formed" is_html
    else
        skip "$1: no python3 to check its tags"
    fi
    check "$1 runs and fetches nothing" lacks '<script|https?://|url\(|@import'
    check "$1 has a dark scheme" in_page 'prefers-color-scheme:dark'
    check "$1 leaves no other file behind" test -z "$(find "$scratch" -name 'page.html.*')"
}

# Tasks alone.  The name of a task is text, whatever it holds.
grep -E '"id": "(few_shot-300|word_problem-[0-9]+|copy_list-300)-0[01]"' "$TASKS" |
    sed 's/"task": "few_shot"/"task": "<b>\&few\\"s'"'"'"/' >"$scratch/tasks"
keep_all=leankv:ah=0,al=0,window=16,high=k8v8,low=k8v4
keep_none=leankv:ah=100000,al=100000,window=16,high=k8v4,low=k4v2
try eval -m "$MODEL" --tasks "$scratch/tasks" --kv f16 --kv k4v4 --kv $keep_all --kv $keep_none --report "$page" --format json
check "eval --report" exits 0
check_json "what it prints"
check_page "the page of tasks"
check "the page is text in its names" in_page '&lt;b&gt;&amp;few&quot;s&#39;'
check "and no markup" lacks '<b>'
check "the page has eval's bytes" in_page "<td>$(sed -n 's/^ *"fraction": \([0-9.]*\),*$/\1/p' "$scratch/out" | tail -1 | awk '{ printf "%.4f", $1 }')</td>"
check "the page says how it was made" in_page 'command.*--kv</span> k4v4'
check "a point for each spec" test "$(count 'class="dot ')" -ge 4
check "a headline" in_page '<h1>.* (answers no less than f16 in [0-9.]+ % of its bytes|ways to keep the KV cache)</h1>'
check "what was run is listed" in_page 'What was run'
check "with what kind it is" in_page '<code>k4v4</code> <span class="caption">every token in one format<'
check "columns without a figure are left out" lacks '<th>(perplexity|kld_mean|same_top1)</th>'
check "kinds that were not run are not in the legend" lacks '</i>topk<'
check "a telephone's width has its own rules" in_page 'max-width:640px'
check "where all figures are as wide as it" lacks 'overflow-x:auto}.*figures svg|flex-wrap:nowrap'
check "a spec is parted behind its marks" in_page '<td class="text">leankv:<wbr>ah=0,<wbr>al=0,<wbr>window=16,'
check "f16's accuracy is a line" in_page 'class="rule".*>f16: [01]\.[0-9]{4}<'
check "each policy's tokens are shown" test "$(count 'Share of a request|requests</h3>')" = 3
check "thresholds of 0 keep every token" in_page '<title>0: 100\.0 %, sd 0\.0</title>'
check "great thresholds do not" in_page '<title>0: [0-9]{1,2}\.[0-9] %, sd [0-9.]+</title>'
check "a request is followed" in_page 'One request, step by step'
check "whose legend has the levels that it had, and no others" test "$(count '</i>high</span></p>')$(count '</i>dropped<')" = 10
check "the first column stays when a table is scrolled" in_page 'first-child\{position:sticky'
check "attention's concentration is shown" in_page 'Tokens that 95 % of the attention goes to'
check "a few tokens get most of it" in_page 'value norm</td><td>[0-9]+</td><td>[0-9.e+-]+</td>'
check "scores spread over more decades than norms" \
    calc "$(sed -n 's/^<tr><td>significance<.*<td>\([0-9.]*\)<\/td><td>[0-9]*<\/td><\/tr>$/\1/p' "$page" | head -1) > \
          $(sed -n 's/^<tr><td>value norm<.*<td>\([0-9.]*\)<\/td><td>[0-9]*<\/td><\/tr>$/\1/p' "$page" | head -1)"

# A text alone, and specs without a policy.
head -c 6000 "$ROOT/eval/prose.txt" | iconv -f utf-8 -t utf-8 -c >"$scratch/text" 2>/dev/null
try eval -m "$MODEL" --text "$scratch/text" --ctx-window 256 --text-windows 3 --kv f16 --kv k2v2 --report "$page" -q
check "eval --text --report" exits 0
check_page "the page of a text"
check "-q: nothing on stderr" test -z "$stderr"
check "the page replaces the one before" lacks 'Accuracy by task'
check "perplexity is shown" in_page 'perplexity of the text'
check "no policy, and the page says so" in_page 'No spec here has a policy'
check "and follows no request" lacks 'One request, step by step'

# Refused before the model is read: there is none.
fails 1 "cannot write /no/dir/page: No such file" eval -m /no/model --tasks "$scratch/tasks" --report /no/dir/page
fails 1 "cannot write $scratch: Is a directory" \
    eval -m /no/model --tasks "$scratch/tasks" --report "$scratch"
fails 1 "--report: cannot write $scratch/tasks: it is the same file as " \
    eval -m /no/model --tasks "$scratch/tasks" --report "$scratch/tasks"
fails 1 "--report: cannot write $scratch/x: it is the same file as " \
    eval -m /no/model --tasks "$scratch/tasks" --report "$scratch/x" -o "$scratch/x"
fails 2 "--report reads the text twice: --text - must be a regular file" \
    eval -m /no/model --text - --report "$scratch/x"
check "nothing was written" test ! -e "$scratch/x"

# -o and --report appear both or not at all.
head -1 "$scratch/tasks" >"$scratch/one"
echo old >"$scratch/rows"
fails 1 "cannot write /dev/full: No space" \
    eval -m "$MODEL" --tasks "$scratch/one" --report /dev/full -o "$scratch/rows" -q
check "a report that cannot be written leaves -o as it was" test "$(<"$scratch/rows")" = old
fails 1 "cannot write /dev/full: No space" \
    eval -m "$MODEL" --tasks "$scratch/one" --report "$scratch/page2" -o /dev/full -q
check "and -o that cannot be written the report" test ! -e "$scratch/page2"
try eval -m "$MODEL" --tasks "$scratch/one" --report "$scratch/page2" -o "$scratch/rows" -q --format csv
check "both are written" test "$code $(head -c 3 "$scratch/rows") $(head -c 15 "$scratch/page2")" = "0 kv, <!doctype html>"
check "and no other file is left" test -z "$(find "$scratch" -name '*.tmp')"

# A run that fails leaves the page that was there.
before=$(cksum "$page")
printf 'no json\n' >"$scratch/bad"
fails 1 "bad, line 1" eval -m "$MODEL" --tasks "$scratch/bad" --report "$page"
check "a failed run leaves the old page" test "$(cksum "$page")" = "$before"
check "and no other file" test -z "$(find "$scratch" -name 'page.html.*')"
finish
