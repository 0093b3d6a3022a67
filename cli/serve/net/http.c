/* SPDX-License-Identifier: MIT
 *
 * http.c: see http.h.
 */
#include "http.h"

#include <string.h>
#include <strings.h>

enum { BAD = -400 };

typedef struct slice {
    const char *p;
    size_t n;
} slice;

/* What has been seen of a head besides its fields. */
typedef struct seen {
    int n_lengths, n_hosts, n_keys, has_codings;
} seen;

/* RFC 9110, 5.6.2. */
static int is_token_char(char c) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return 1;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static int is_token(slice s) {
    for (size_t i = 0; i < s.n; i++)
        if (!is_token_char(s.p[i])) return 0;
    return s.n > 0;
}

static int is(slice s, const char *word) { return s.n == strlen(word) && strncasecmp(s.p, word, s.n) == 0; }

static slice trimmed(slice s) {
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) s.p++, s.n--;
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t')) s.n--;
    return s;
}

/* Does a list of words with commas between have this one? */
static int lists(slice s, const char *word) {
    while (s.n > 0) {
        const char *comma = memchr(s.p, ',', s.n);
        const slice one = {s.p, comma ? (size_t)(comma - s.p) : s.n};
        if (is(trimmed(one), word)) return 1;
        s = comma ? (slice){comma + 1, s.n - one.n - 1} : (slice){s.p, 0};
    }
    return 0;
}

/* The line at *rest, without its CRLF, which *rest is behind then.  0: it does not end so. */
static int take_line(slice *rest, slice *line) {
    const char *end = memchr(rest->p, '\n', rest->n);
    if (!end || end == rest->p || end[-1] != '\r') return 0;
    *line = (slice){rest->p, (size_t)(end - rest->p) - 1};
    *rest = (slice){end + 1, rest->n - line->n - 2};
    for (size_t i = 0; i < line->n; i++)
        if (((unsigned char)line->p[i] < 0x20 && line->p[i] != '\t') || line->p[i] == 0x7F) return 0;
    return 1;
}

/* /path?query, or, as to a proxy, http://host/path?query (RFC 9112, 3.2.2). */
static int read_target(slice target, http_head *out) {
    static const char scheme[] = "http://";
    const size_t n = sizeof scheme - 1;
    for (size_t i = 0; i < target.n; i++)
        if ((unsigned char)target.p[i] <= 0x20 || (unsigned char)target.p[i] >= 0x7F) return BAD;
    if (target.n > n && strncasecmp(target.p, scheme, n) == 0) {
        const char *slash = memchr(target.p + n, '/', target.n - n);
        if (!slash || slash == target.p + n) return BAD;
        target = (slice){slash, target.n - (size_t)(slash - target.p)};
    }
    if (target.n == 0 || target.p[0] != '/') return BAD;
    const char *question = memchr(target.p, '?', target.n);
    memcpy(out->path, target.p, question ? (size_t)(question - target.p) : target.n);
    return 0;
}

/* METHOD SP TARGET SP HTTP/1.x */
static int read_request_line(slice line, http_head *out) {
    const char *first = memchr(line.p, ' ', line.n);
    if (!first) return BAD;
    const slice method = {line.p, (size_t)(first - line.p)};
    const slice rest = {first + 1, line.n - method.n - 1};
    const char *second = memchr(rest.p, ' ', rest.n);
    if (!second || !is_token(method) || method.n >= HTTP_METHOD_CAP) return BAD;
    const slice target = {rest.p, (size_t)(second - rest.p)};
    const slice version = {second + 1, rest.n - target.n - 1};
    if (version.n != 8 || memcmp(version.p, "HTTP/", 5) != 0) return BAD;
    if (memcmp(version.p, "HTTP/1.1", 8) != 0 && memcmp(version.p, "HTTP/1.0", 8) != 0) return -505;
    if (target.n > HTTP_TARGET_MAX) return -414;
    memcpy(out->method, method.p, method.n);
    if (read_target(target, out) != 0) return BAD;
    out->minor = version.p[7] - '0';
    out->stays = out->minor == 1;
    return 0;
}

static int read_length(slice value, http_head *out) {
    if (value.n == 0 || value.n > 15) return BAD;
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] < '0' || value.p[i] > '9') return BAD;
        out->content_length = out->content_length * 10 + (uint64_t)(value.p[i] - '0');
    }
    return 0;
}

static int read_key(slice value, http_head *out) {
    static const char scheme[] = "Bearer ";
    const size_t n = sizeof scheme - 1;
    if (value.n <= n || strncasecmp(value.p, scheme, n) != 0) return 0; /* no key of ours */
    const slice key = trimmed((slice){value.p + n, value.n - n});
    if (key.n >= HTTP_KEY_CAP) return BAD;
    memcpy(out->key, key.p, key.n);
    return 0;
}

static int read_field(slice line, http_head *out, seen *s) {
    const char *colon = memchr(line.p, ':', line.n);
    if (!colon) return BAD;
    const slice name = {line.p, (size_t)(colon - line.p)};
    const slice value = trimmed((slice){colon + 1, line.n - name.n - 1});
    if (!is_token(name)) return BAD; /* a line that goes on begins with a blank, which is no token either */
    if (is(name, "Content-Length")) return s->n_lengths++ ? BAD : read_length(value, out);
    if (is(name, "Host")) return s->n_hosts++ ? BAD : 0;
    if (is(name, "Authorization")) return s->n_keys++ ? BAD : read_key(value, out);
    if (is(name, "Transfer-Encoding")) s->has_codings = 1;
    if (is(name, "Expect") && is(value, "100-continue")) out->expects_continue = out->minor == 1;
    if (is(name, "Connection") && lists(value, "close")) out->stays = 0;
    if (is(name, "Connection") && out->minor == 0 && lists(value, "keep-alive")) out->stays = 1;
    return 0;
}

int http_read_head(const char *bytes, size_t n, http_head *out) {
    const size_t n_seen = n < HTTP_HEAD_MAX ? n : HTTP_HEAD_MAX;
    const char *end = memmem(bytes, n_seen, "\r\n\r\n", 4);
    if (!end) return n > HTTP_HEAD_MAX ? -431 : memchr(bytes, 0, n_seen) ? BAD : 0;
    slice rest = {bytes, (size_t)(end - bytes) + 2}, line;
    seen s = {0};
    memset(out, 0, sizeof *out);
    if (!take_line(&rest, &line)) return BAD;
    int status = read_request_line(line, out);
    for (int i = 0; status == 0 && rest.n > 0; i++) {
        if (i == HTTP_FIELDS_MAX) return -431;
        status = take_line(&rest, &line) ? read_field(line, out, &s) : BAD;
    }
    if (status != 0) return status;
    if (out->minor == 1 && s.n_hosts != 1) return BAD;
    if (s.has_codings) return s.n_lengths ? BAD : -411;
    return (int)(end - bytes) + 4;
}

const char *http_reason(int status) {
    switch (status) {
        case 200: return "OK";
        case 400: return "Bad Request";
        case 401: return "Unauthorized";
        case 403: return "Forbidden";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 408: return "Request Timeout";
        case 409: return "Conflict";
        case 411: return "Length Required";
        case 413: return "Content Too Large";
        case 414: return "URI Too Long";
        case 429: return "Too Many Requests";
        case 431: return "Request Header Fields Too Large";
        case 500: return "Internal Server Error";
        case 503: return "Service Unavailable";
        case 505: return "HTTP Version Not Supported";
        default: return "Error";
    }
}
