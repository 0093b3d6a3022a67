/* SPDX-License-Identifier: MIT
 *
 * image.c: `pleat image inspect` and `pleat image verify`: files of sequences, as `run --prompt-cache` writes them.
 *
 *     inspect    what the head says: no model is needed
 *     verify     every sum; with -m also that the file is of that model, and that a cache takes it
 */
#include <string.h>

#include "cli/lib/common.h"
#include "cli/lib/image/image_file.h"
#include "cli/lib/output.h"

typedef struct image_options {
    common_options common;
    load_options load; /* of verify */
    const char *file;
} image_options;

#define AT(field) .offset = offsetof(image_options, field)
/* clang-format off */
#define FILE_ROW                                                                                                       \
    {GROUP_MACHINE, "FILE", NULL, "FILE", "file of a sequence", KIND_OPERAND, AT(file)}
static const option_row inspect_rows[] = {
    FILE_ROW,
    COMMON_ROWS(image_options),
};
static const option_row verify_rows[] = {
    FILE_ROW,
    LOAD_ROWS(image_options, load),
    CPU_MASK_ROW(image_options),
    COMMON_ROWS(image_options),
};
/* clang-format on */

static const option_demand demands[] = {
    {"FILE", "no file: give the path of a file that `pleat run --prompt-cache` has written"},
};

/* ---- inspect ----------------------------------------------------------------------------------- */

static json_t *head_json(const image_file *f) {
    const pleat_image_head *h = &f->head;
    return json_pack("{s:s, s:I, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "file", f->path,
                     "bytes", (json_int_t)f->n_bytes, "model", h->model, "kv", json_stringn(h->spec, h->n_spec),
                     "profile", h->profile[0] ? json_string(h->profile) : json_null(), "tokens",
                     (json_int_t)h->n_tokens, "steps", (json_int_t)h->n_steps, "layers", (json_int_t)h->n_layers,
                     "q_heads", (json_int_t)h->n_q_heads, "kv_heads", (json_int_t)h->n_kv_heads, "head_dim",
                     (json_int_t)h->head_dim, "page_tokens", (json_int_t)h->page_tokens, "body_bytes",
                     (json_int_t)h->body_bytes, "piece_bytes", (json_int_t)h->piece_bytes, "has_salt", h->n_salt > 0);
}

static void put_pair(table *t, const char *what, const char *value) {
    table_put(t, "%s", what);
    table_put(t, "%s", value);
}

static void write_head_table(const image_file *f, output *out) {
    static const char *const titles[] = {"what", "value"};
    const pleat_image_head *h = &f->head;
    char text[PLEAT_SPEC_TEXT_CAP + 64], size[BYTES_CAP];
    table t;
    table_init(&t, titles, 2);
    put_pair(&t, "file", f->path);
    snprintf(text, sizeof text, "%s, %llu pieces of %u bytes behind the head", print_bytes(size, f->n_bytes),
             (unsigned long long)pleat_image_n_pieces(h), h->piece_bytes);
    put_pair(&t, "size", text);
    put_pair(&t, "model's fingerprint", h->model);
    snprintf(text, sizeof text, "%.*s", (int)h->n_spec, h->spec);
    put_pair(&t, "KV cache", text);
    put_pair(&t, "profile's fingerprint", h->profile[0] ? h->profile : "none");
    snprintf(text, sizeof text, "%u, read in %u steps of several and one by one", h->n_tokens, h->n_steps);
    put_pair(&t, "tokens", text);
    snprintf(text, sizeof text, "%u layers, %u query heads, %u KV heads, head dimension %u, pages of %u tokens",
             h->n_layers, h->n_q_heads, h->n_kv_heads, h->head_dim, h->page_tokens);
    put_pair(&t, "shape", text);
    snprintf(text, sizeof text, "%.1f %% of f16's",
             100 * (double)h->body_bytes / (4.0 * h->head_dim * h->n_kv_heads * h->n_layers * h->n_tokens));
    put_pair(&t, "body", text);
    put_pair(&t, "salt", h->n_salt ? "has one: for requests with the same alone" : "none");
    table_write(&t, out);
    table_release(&t);
}

/* Open the file, or say why not. */
static int open_file(image_file *f, const char *path) {
    pleat_error err;
    const pleat_status status = image_file_open(f, path, &err);
    return status == PLEAT_OK ? CLI_OK : cli_fail(path, status, &err);
}

static int inspect_main(void *opts) {
    image_options *o = opts;
    image_file f;
    output out;
    if (open_file(&f, o->file) != CLI_OK) return CLI_FAILED;
    int code = output_open(&out, &o->common);
    if (code == CLI_OK) {
        if (out.format == FORMAT_JSON)
            output_json(&out, head_json(&f));
        else
            write_head_table(&f, &out);
        code = output_close(&out);
    }
    image_file_close(&f);
    return code;
}

/* ---- verify ------------------------------------------------------------------------------------ */

/* Does a cache of that model take the sequence? */
static int restore(image_options *o, const image_file *f, loaded *l) {
    char spec[PLEAT_SPEC_TEXT_CAP];
    const pleat_seq no_base = {0};
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    pleat_image_head wanted;
    pleat_seq seq;
    snprintf(spec, sizeof spec, "%.*s", (int)f->head.n_spec, f->head.spec);
    pleat_spec parsed;
    pleat_engine *engine = NULL;
    pleat_status status = pleat_spec_parse(spec, &parsed, &err);
    if (status != PLEAT_OK) return cli_fail(f->path, status, &err);
    int code = load_stats(&o->load, l, &parsed, spec);
    if (code != CLI_OK) return code;
    pleat_engine_options opt = load_engine_options(&o->load, l, parsed, 1, f->head.n_tokens, 0);
    opt.page_tokens = f->head.page_tokens;
    code = load_engine_with(l, &opt, &engine);
    if (code == CLI_OK) code = image_file_wanted(engine, spec, &wanted);
    if (code == CLI_OK) {
        wanted.salt = f->head.salt;
        wanted.n_salt = f->head.n_salt;
        status = pleat_image_compare(&f->head, &wanted, &err);
        if (status == PLEAT_OK)
            status = pleat_engine_restore_for(engine, f->body, f->head.body_bytes, no_base, f->head.n_tokens, &seq);
        if (status == PLEAT_OK && !pleat_engine_is_valid(engine)) status = PLEAT_E_FORMAT;
        if (status != PLEAT_OK) code = cli_fail(f->path, status, &err);
    }
    pleat_engine_destroy(&engine);
    return code;
}

static int verify_main(void *opts) {
    image_options *o = opts;
    image_file f;
    loaded l = {0};
    const int has_model = o->load.model || o->common.hf_repo;
    if (open_file(&f, o->file) != CLI_OK) return CLI_FAILED;
    int code = has_model ? load_model(&o->load, &o->common, &l) : CLI_OK;
    if (code == CLI_OK && has_model) {
        code = restore(o, &f, &l);
        load_release(&l);
    }
    if (code == CLI_OK && !o->common.quiet)
        printf("%s: whole and undamaged%s\n", o->file, has_model ? ", and a cache of the model takes it" : "");
    image_file_close(&f);
    return code;
}

static void set_defaults(void *opts) { ((image_options *)opts)->load.chunk_tokens = DEFAULT_CHUNK_TOKENS; }

const command image_inspect_command = {
    .name = "image inspect",
    .help = "what a file of a sequence holds",
    .usage = "FILE",
    .about =
        "Says of which model, KV spec and shape a file is that `pleat run --prompt-cache` has written, and how many "
        "tokens it holds.  All sums are checked first; what is damaged is refused.",
    ROWS_OF(inspect_rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(image_options),
    .set_defaults = set_defaults,
    .run = inspect_main,
};

const command image_verify_command = {
    .name = "image verify",
    .help = "check every byte of a file of a sequence",
    .usage = "FILE [-m MODEL]",
    .about =
        "Checks a file that `pleat run --prompt-cache` has written: its head, its length and the sum of each piece.  "
        "With a model also that the file is of that model, and that a cache takes what it holds.",
    ROWS_OF(verify_rows),
    DEMANDS_OF(demands),
    .options_bytes = sizeof(image_options),
    .set_defaults = set_defaults,
    .run = verify_main,
};
