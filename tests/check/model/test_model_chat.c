/* SPDX-License-Identifier: MIT
 *
 * test_model_chat.c: conversations by a model's own chat template, in ChatML where the file has none, and models whose
 * template is refused: they load, and chat says why.
 *
 * The models are tiny files: a tokenizer of bytes and four special tokens, and tensors of zeros.
 */
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "gguf_writer.h"
#include "pleat/pleat.h"

enum { F32 = 0, N_EMBD = 32, N_FF = 32, HEAD_DIM = 16, N_VOCAB = 260, BOS = 258, EOS = 259 };

typedef struct file {
    const char *template; /* NULL: none */
    int has_chatml;       /* the vocabulary has its tokens */
    int has_bos;          /* and asks for it in front */
} file;

static void put_tensors(gguf_writer *w) {
    static const struct {
        const char *name;
        uint64_t cols, rows;
    } all[] = {{"token_embd.weight", N_EMBD, N_VOCAB},        {"output_norm.weight", N_EMBD, 1},
               {"blk.0.attn_norm.weight", N_EMBD, 1},         {"blk.0.ffn_norm.weight", N_EMBD, 1},
               {"blk.0.attn_q.weight", N_EMBD, 2 * HEAD_DIM}, {"blk.0.attn_k.weight", N_EMBD, HEAD_DIM},
               {"blk.0.attn_v.weight", N_EMBD, HEAD_DIM},     {"blk.0.attn_output.weight", 2 * HEAD_DIM, N_EMBD},
               {"blk.0.ffn_gate.weight", N_EMBD, N_FF},       {"blk.0.ffn_up.weight", N_EMBD, N_FF},
               {"blk.0.ffn_down.weight", N_FF, N_EMBD}};
    for (size_t i = 0; i < CHECK_COUNT(all); i++) {
        const uint64_t dims[2] = {all[i].cols, all[i].rows};
        gw_tensor(w, all[i].name, F32, all[i].rows == 1 ? 1 : 2, dims, 4 * dims[0] * dims[1]);
    }
}

static void write_model(gguf_writer *w, const file *f) {
    static const char *const with[] = {"<|im_start|>", "<|im_end|>", "<s>", "</s>"};
    static const char *const without[] = {"<|a|>", "<|b|>", "<s>", "</s>"};
    gw_header(w, 3);
    gw_kv_str(w, "general.architecture", "llama");
    gw_kv_u32(w, "llama.context_length", 128);
    gw_kv_u32(w, "llama.embedding_length", N_EMBD);
    gw_kv_u32(w, "llama.block_count", 1);
    gw_kv_u32(w, "llama.feed_forward_length", N_FF);
    gw_kv_u32(w, "llama.attention.head_count", 2);
    gw_kv_u32(w, "llama.attention.head_count_kv", 1);
    gw_kv_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (f->template) gw_kv_str(w, "tokenizer.chat_template", f->template);
    gw_kv_u32(w, "tokenizer.ggml.bos_token_id", BOS);
    gw_kv_u32(w, "tokenizer.ggml.eos_token_id", EOS);
    gw_kv_bool(w, "tokenizer.ggml.add_bos_token", f->has_bos != 0);
    gw_tokenizer(w, "llama-bpe", f->has_chatml ? with : without, 4, 4, NULL, 0);
    put_tensors(w);
    gw_data(w);
}

static pleat_model *load(const file *f, const pleat_allocator *allocator, pleat_status *status) {
    char path[256];
    pleat_model *m = NULL;
    pleat_error err = {0};
    gguf_writer w;
    write_model(&w, f);
    *status = PLEAT_E_IO;
    if (CHECK(check_write_temp(w.p, w.n, path, sizeof path))) {
        *status = pleat_model_load(path, allocator, &m, &err);
        unlink(path);
    }
    gw_free(&w);
    return m;
}

static const pleat_chat_message messages[] = {{"user", "Hi"}, {"assistant", "Yes?"}, {"user", "Go on"}};

/* What the model makes of them, or the reason why not. */
static void chats(const file *f, pleat_status want, int want_own, const char *text) {
    pleat_status status;
    pleat_error err = {0};
    char out[512] = "";
    size_t n = 0;
    int is_own = -1;
    pleat_model *m = load(f, NULL, &status);
    check_context("%s", f->template ? f->template : "none");
    if (!CHECK_STATUS(status, PLEAT_OK)) return;
    CHECK_STATUS(pleat_model_chat_check(m, &is_own, NULL), want == PLEAT_E_ARG ? PLEAT_OK : want);
    CHECK_EQ_I64(is_own, want_own);
    CHECK_STATUS(pleat_model_chat(m, messages, 3, out, sizeof out, &n, &err), want);
    CHECK_EQ_STR(want == PLEAT_OK ? out : err.text, text);
    pleat_model_destroy(&m);
}

static void test_own(void) {
    static const char own[] = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}"
                              "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    chats(&(file){.template = own}, PLEAT_OK, 1, "<s>[user]Hi</s>[assistant]Yes?</s>[user]Go on</s>[assistant]");
    chats(&(file){.template = own, .has_bos = 1}, PLEAT_OK, 1,
          "[user]Hi</s>[assistant]Yes?</s>[user]Go on</s>[assistant]");
    chats(&(file){.template = "{{ messages[3].content }}"}, PLEAT_E_ARG, 1,
          "line 1: 'that item' is undefined: what it is asked of has none");
}

static void test_none(void) {
    static const char chatml[] = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n"
                                 "<|im_start|>user\nGo on<|im_end|>\n<|im_start|>assistant\n";
    chats(&(file){.has_chatml = 1}, PLEAT_OK, 0, chatml);
    chats(&(file){.template = "", .has_chatml = 1, .has_bos = 1}, PLEAT_OK, 0, chatml);
    chats(&(file){0}, PLEAT_E_UNSUPPORTED, 0,
          "the file has no chat template, and its vocabulary lacks ChatML's tokens");
}

static void test_refused(void) {
    chats(&(file){.template = "a\n{% import 'b' as b %}", .has_chatml = 1}, PLEAT_E_UNSUPPORTED, 1,
          "chat template: line 2: the tag 'import' is not supported");
    chats(&(file){.template = "{{ a"}, PLEAT_E_SYNTAX, 1, "chat template: line 1: a tag does not end");
}

static void test_json(void) {
    static const char template[] = "{{ bos_token }}{{ eos_token }}|{{ unk_token is defined }}|{{ tools|tojson }}|{{ "
                                   "messages[0].reasoning_content }}|"
                                   "{{ messages[0].thinking }}|{{ documents }}|{{ add_generation_prompt }}|{{ mine }}";
    static const char json[] =
        "{\"messages\":[{\"reasoning\":\"so\"}],\"eos_token\":\"END\",\"tools\":[{\"name\":\"f\"}],\"mine\":1.5}";
    char out[256];
    size_t n = 0;
    pleat_status status;
    pleat_error err = {0};
    pleat_model *m = load(&(file){.template = template, .has_bos = 1}, NULL, &status);
    if (!CHECK_STATUS(status, PLEAT_OK)) return;
    if (CHECK_STATUS(pleat_model_chat_json(m, json, sizeof json - 1, NULL, out, sizeof out, &n, &err), PLEAT_OK)) {
        CHECK_EQ_STR(out, "<s>END|False|[{\"name\": \"f\"}]|so|so|None|False|1.5");
    }
    CHECK_STATUS(pleat_model_chat_json(m, "{", 1, NULL, out, sizeof out, &n, &err), PLEAT_E_SYNTAX);
    CHECK_STATUS(pleat_model_chat_json(m, "[]", 2, NULL, out, sizeof out, &n, &err), PLEAT_E_SYNTAX);
    CHECK_STATUS(pleat_model_chat_json(m, NULL, 0, NULL, out, sizeof out, &n, &err), PLEAT_E_ARG);
    const pleat_chat_message bad = {"user", "\xff"};
    CHECK_STATUS(pleat_model_chat(m, &bad, 1, out, sizeof out, &n, &err), PLEAT_E_SYNTAX);
    pleat_model_destroy(&m);
}

static void test_load_failures(void) {
    const file f = {.template = "{% for m in messages %}{{ m.content }}{% endfor %}"};
    check_alloc ca;
    for (uint64_t nth = 1;; nth++) {
        pleat_status status;
        check_alloc_init(&ca, nth, 0);
        pleat_model *m = load(&f, &ca.a, &status);
        if (status == PLEAT_OK) {
            CHECK_STATUS(pleat_model_chat_check(m, NULL, NULL), PLEAT_OK);
            pleat_model_destroy(&m);
            CHECK_EQ_U64(ca.live, 0);
            break;
        }
        if (!CHECK_STATUS(status, PLEAT_E_MEMORY)) break;
        CHECK_EQ_U64(ca.live, 0);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {{"own", test_own},
                                       {"none", test_none},
                                       {"refused", test_refused},
                                       {"json", test_json},
                                       {"load_failures", test_load_failures}};
    return check_main(tests, CHECK_COUNT(tests), argc, argv);
}
