/* SPDX-License-Identifier: MIT
 *
 * output.c: see output.h.
 */
#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "measure.h"
#include "terminal.h"
#include "utf8.h"

static int is_regular(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* The file that the command reads and `path` names too, or NULL. */
static const char *hit_input(const common_options *common, const char *path) {
    for (uint32_t i = 0; i < common->n_inputs; i++) {
        const char *input = common->inputs[i];
        if (whole_file_is_same(path, strcmp(input, "-") != 0 ? input : "/dev/stdin")) return input;
    }
    return NULL;
}

/* Whether output `i` shares its file with one of those behind it, or with stdout; a message says so. */
static int hits_output(const common_options *common, uint32_t i) {
    const output_name *out = common->outputs;
    for (uint32_t other = i + 1; other < common->n_outputs; other++)
        if (whole_file_is_same(out[i].path, out[other].path)) {
            cli_error("--%s: cannot write %s: it is the same file as %s, which --%s writes", out[i].option, out[i].path,
                      out[other].path, out[other].option);
            return 1;
        }
    const int has_stdout = !common->output || strcmp(common->output, "-") == 0;
    if (!has_stdout || !is_regular("/dev/stdout") || !whole_file_is_same(out[i].path, "/dev/stdout")) return 0;
    cli_error("--%s: cannot write %s: it is the same file as standard output", out[i].option, out[i].path);
    return 1;
}

int output_check_names(const common_options *common) {
    for (uint32_t i = 0; i < common->n_outputs; i++) {
        const output_name *out = &common->outputs[i];
        const char *input = hit_input(common, out->path);
        if (input)
            cli_error("--%s: cannot write %s: it is the same file as %s, which is read", out->option, out->path, input);
        if (input || hits_output(common, i)) return CLI_FAILED;
    }
    return CLI_OK;
}

int output_open(output *out, const common_options *common) {
    const char *path = common->output && strcmp(common->output, "-") != 0 ? common->output : NULL;
    *out = (output){.file = stdout, .path = path, .format = common->format};
    if (!path) return CLI_OK;
    out->file = NULL;
    const int is_special = whole_file_is_special(path);
    const int code = is_special ? whole_file_open(&out->whole, path) : whole_file_check(path);
    if (code != CLI_OK) return code;
    out->file = is_special ? out->whole.file : open_memstream(&out->text, &out->n_text);
    if (out->file) return CLI_OK;
    cli_error("cannot write %s: %s", path, strerror(errno));
    return CLI_FAILED;
}

int output_flush(output *out) {
    if (fflush(out->file) == 0 && !ferror(out->file)) return 1;
    if (!out->whole.why) out->whole.why = errno;
    return 0;
}

static int close_stdout(output *out) {
    if (output_flush(out)) return CLI_OK;
    cli_error("cannot write standard output: %s", strerror(out->whole.why));
    return CLI_FAILED;
}

/* What was printed, if all of it is there, becomes the file. */
static int write_text(output *out) {
    const int bad = fflush(out->file) != 0 || ferror(out->file);
    const int bad_close = fclose(out->file) != 0;
    int code = CLI_OK;
    if (bad || bad_close) {
        cli_error("cannot write %s: out of memory", out->path);
        code = CLI_FAILED;
    } else if (out->n_text || out->is_done) {
        code = whole_file_open(&out->whole, out->path);
        if (code == CLI_OK) {
            fwrite(out->text, 1, out->n_text, out->whole.file);
            code = whole_file_close(&out->whole);
        }
    }
    free(out->text);
    return code;
}

int output_close(output *out) {
    int code = CLI_OK;
    if (!out->file) return CLI_OK;
    if (!out->path)
        code = close_stdout(out);
    else
        code = out->whole.file ? whole_file_close(&out->whole) : write_text(out);
    out->file = NULL;
    return code == CLI_OK && out->is_incomplete ? CLI_FAILED : code;
}

void output_json(output *out, json_t *root) {
    if (!root) {
        cli_error("cannot put the result into JSON");
        out->is_incomplete = 1;
        return;
    }
    json_dumpf(root, out->file, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    fputc('\n', out->file);
    json_decref(root);
}

json_t *json_text(const char *text) {
    const size_t n = strlen(text);
    utf8_stream stream = {.n_held = 0};
    char *valid = cli_alloc(UTF8_STREAM_CAP(n), 1);
    size_t n_valid = utf8_stream_put(&stream, text, n, valid);
    n_valid += utf8_stream_end(&stream, valid + n_valid);
    json_t *s = json_stringn(valid, n_valid);
    free(valid);
    return s;
}

json_t *json_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

json_t *json_spread(measure_spread s) {
    return json_pack("{s:f, s:f, s:f}", "min", s.min, "median", s.median, "max", s.max);
}

void table_write(const table *t, output *out) {
    if (out->format == FORMAT_CSV)
        table_print_csv(t, out->file);
    else if (out->format == FORMAT_MD)
        table_print_md(t, out->file);
    else
        table_print_aligned(t, out->file, terminal_columns(out->file));
}

int output_check_rows(const json_t *rows, const char *why) {
    if (json_array_size(rows)) return CLI_OK;
    cli_error("nothing left to measure: %s", why);
    return CLI_FAILED;
}

void output_rows(output *out, json_t *rows, json_t *skipped, const table *t) {
    if (out->format == FORMAT_JSON)
        output_json(out, json_pack("{s:O, s:O*}", "rows", rows, "skipped", skipped));
    else
        table_write(t, out);
}

int output_end_rows(output *out, int code, json_t *rows, json_t *skipped, table *t) {
    if (code == CLI_OK) output_rows(out, rows, skipped, t);
    const int closed = output_close(out);
    json_decref(rows);
    json_decref(skipped);
    table_release(t);
    return code == CLI_OK ? closed : code;
}

const char *print_bytes(char buf[BYTES_CAP], uint64_t n) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)n;
    int unit = 0;
    while (v >= 1024 && unit < 6) {
        v /= 1024;
        unit++;
    }
    snprintf(buf, BYTES_CAP,
             unit == 0 ? "%.0f %s"
             : v < 10  ? "%.2f %s"
             : v < 100 ? "%.1f %s"
                       : "%.0f %s",
             v, units[unit]);
    return buf;
}
