/* SPDX-License-Identifier: MIT
 *
 * http.c: see http.h.
 */
#include "http.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "cli/lib/common.h"
#include "cli/lib/interrupt.h"

enum { HOPS_MAX = 10, URL_CAP = 8192, CONNECT_S = 10, REFUSAL_BYTES_MAX = 1 << 16 };

struct http_session {
    CURL *curl;
    const char *origin, *token;
    uint32_t stall_s;
    char why[CURL_ERROR_SIZE + 64];
};

/* One hop. */
typedef struct hop {
    http_session *s;
    const http_sink *sink;
    http_answer *answer;
    int has_begun;    /* `head` was asked */
    int is_unwanted;  /* `head` or `take` said no */
    size_t n_refusal; /* bytes of a body that nobody wants */
} hop;

/* ---- who may see the token --------------------------------------------------------------------- */

/* A part of a URL on the heap, or NULL. */
static char *url_part(const char *url, CURLUPart part) {
    CURLU *u = curl_url();
    char *text = NULL;
    if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK) curl_url_get(u, part, &text, CURLU_DEFAULT_PORT);
    curl_url_cleanup(u);
    return text;
}

static int has_same(const char *a, const char *b, CURLUPart part) {
    char *in_a = url_part(a, part), *in_b = url_part(b, part);
    const int is_same = in_a && in_b && !strcasecmp(in_a, in_b);
    curl_free(in_a);
    curl_free(in_b);
    return is_same;
}

static int is_https(const char *url) { return !strncasecmp(url, "https://", 8); }

/* Plain http to this machine is read by nobody else. */
static int is_private(const char *url) {
    char *host = url_part(url, CURLUPART_HOST);
    const int is_here =
        host && (!strcmp(host, "127.0.0.1") || !strcmp(host, "[::1]") || !strcasecmp(host, "localhost"));
    curl_free(host);
    return is_here || is_https(url);
}

static int shows_token(const http_session *s, const char *url) {
    return s->token && is_private(url) && has_same(url, s->origin, CURLUPART_SCHEME) &&
           has_same(url, s->origin, CURLUPART_HOST) && has_same(url, s->origin, CURLUPART_PORT);
}

/* ---- what comes -------------------------------------------------------------------------------- */

/* The value of the header line if it is `name`'s, without spaces and line ends around it; else NULL. */
static const char *value_of(const char *line, size_t n, const char *name, size_t *n_value) {
    const size_t n_name = strlen(name);
    if (n <= n_name || strncasecmp(line, name, n_name) != 0 || line[n_name] != ':') return NULL;
    const char *value = line + n_name + 1, *end = line + n;
    while (value < end && (*value == ' ' || *value == '\t')) value++;
    while (end > value && strchr("\r\n \t", end[-1])) end--;
    *n_value = (size_t)(end - value);
    return value;
}

/* A header's value as text; "" if it does not fit. */
static void copy_value(char *out, size_t cap, const char *value, size_t n) {
    const size_t kept = n < cap ? n : 0;
    memcpy(out, value, kept);
    out[kept] = 0;
}

/* "bytes 100-199/200" */
static void read_range(http_answer *a, const char *value, size_t n) {
    char text[96];
    long long first = -1, last = -1, total = -1;
    copy_value(text, sizeof text, value, n);
    if (sscanf(text, "bytes %lld-%lld/%lld", &first, &last, &total) < 2) return;
    a->range_first = first;
    a->range_total = total;
}

/* <URL>; rel="next" */
static void read_link(http_answer *a, const char *value, size_t n) {
    char text[sizeof a->next];
    copy_value(text, sizeof text, value, n);
    const char *end = strchr(text, '>');
    if (text[0] == '<' && end && strstr(end, "rel=\"next\""))
        copy_value(a->next, sizeof a->next, text + 1, (size_t)(end - text - 1));
}

static size_t on_header(char *line, size_t size, size_t n, void *self) {
    http_answer *a = ((hop *)self)->answer;
    size_t n_value;
    const char *value;
    n *= size;
    if (n > 5 && !strncmp(line, "HTTP/", 5)) /* a new answer: what an earlier one said does not count */
        *a = (http_answer){.content_length = -1, .range_first = -1, .range_total = -1, .retry_after_s = UINT32_MAX};
    if ((value = value_of(line, n, "etag", &n_value)) && value[0] == '"')
        copy_value(a->etag, sizeof a->etag, value, n_value);
    else if ((value = value_of(line, n, "content-range", &n_value)))
        read_range(a, value, n_value);
    else if ((value = value_of(line, n, "link", &n_value)))
        read_link(a, value, n_value);
    else if ((value = value_of(line, n, "x-error-message", &n_value)))
        copy_value(a->message, sizeof a->message, value, n_value);
    else if ((value = value_of(line, n, "retry-after", &n_value)) && n_value < 6 && value[0] >= '0' && value[0] <= '9')
        a->retry_after_s = (uint32_t)strtoul(value, NULL, 10);
    return n;
}

/* Status and length of the answer whose headers have come. */
static void read_status(hop *h) {
    curl_off_t length = -1;
    curl_easy_getinfo(h->s->curl, CURLINFO_RESPONSE_CODE, &h->answer->status);
    curl_easy_getinfo(h->s->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    h->answer->content_length = length;
}

static int is_wanted(const hop *h) { return h->answer->status == 200 || h->answer->status == 206; }

static int begin(hop *h) {
    if (h->has_begun) return 1;
    h->has_begun = 1;
    read_status(h);
    if (is_wanted(h) && h->sink->head && !h->sink->head(h->sink->self, h->answer)) h->is_unwanted = 1;
    return !h->is_unwanted;
}

/* libcurl ends the transfer where less is taken than came. */
static size_t on_body(char *bytes, size_t size, size_t n, void *self) {
    hop *h = self;
    n *= size;
    if (!begin(h)) return 0;
    if (!is_wanted(h)) {
        h->n_refusal += n;
        return h->n_refusal > REFUSAL_BYTES_MAX ? 0 : n;
    }
    if (h->sink->take(h->sink->self, bytes, n)) return n;
    h->is_unwanted = 1;
    return 0;
}

static int on_progress(void *self, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)self, (void)a, (void)b, (void)c, (void)d;
    return interrupt_came();
}

/* ---- one hop ----------------------------------------------------------------------------------- */

/* Add a header line; libcurl copies it. */
static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value) {
    char line[1024];
    snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(list, line);
    return longer ? longer : list;
}

static void set_options(hop *h, const char *url) {
    CURL *curl = h->s->curl;
    const char *authorities = getenv("SSL_CERT_FILE");
    curl_easy_reset(curl);
    if (authorities && authorities[0]) curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    if (!is_https(url) && is_private(url)) curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* it would read the token */
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)h->s->stall_s);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "pleat/" PLEAT_VERSION_STRING);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, h->s->why);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, h);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, h);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
}

/* What libcurl's end of a hop means. */
static http_fate fate_of(hop *h, CURLcode code) {
    if (interrupt_came()) return HTTP_INTERRUPTED;
    if (h->is_unwanted) return HTTP_STOPPED;
    if (code != CURLE_OK && !h->s->why[0]) snprintf(h->s->why, sizeof h->s->why, "%s", curl_easy_strerror(code));
    switch (code) {
        case CURLE_OK: break;
        case CURLE_URL_MALFORMAT:
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_CACERT_BADFILE:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_OUT_OF_MEMORY: return HTTP_REFUSED;
        case CURLE_WRITE_ERROR: return is_wanted(h) ? HTTP_BROKEN : HTTP_STATUS; /* a refusal that is too long */
        default: return HTTP_BROKEN;
    }
    if (is_wanted(h)) return begin(h) ? HTTP_DONE : HTTP_STOPPED;
    snprintf(h->s->why, sizeof h->s->why, "the server answers with status %ld", h->answer->status);
    return HTTP_STATUS;
}

static http_fate get_once(http_session *s, const char *url, uint64_t first, const char *if_range, const http_sink *sink,
                          http_answer *answer) {
    hop h = {.s = s, .sink = sink, .answer = answer};
    struct curl_slist *headers = NULL;
    char range[32], bearer[600];
    *answer = (http_answer){.content_length = -1, .range_first = -1, .range_total = -1, .retry_after_s = UINT32_MAX};
    s->why[0] = 0;
    set_options(&h, url);
    snprintf(range, sizeof range, "%llu-", (unsigned long long)first);
    if (first) curl_easy_setopt(s->curl, CURLOPT_RANGE, range);
    if (first && if_range) headers = add_header(headers, "If-Range", if_range);
    snprintf(bearer, sizeof bearer, "Bearer %s", s->token ? s->token : "");
    if (shows_token(s, url)) headers = add_header(headers, "Authorization", bearer);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, headers);
    const CURLcode code = curl_easy_perform(s->curl);
    read_status(&h);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    return fate_of(&h, code);
}

/* ---- all hops ---------------------------------------------------------------------------------- */

static int is_redirect(long status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static http_fate refuse(http_session *s, const char *why) {
    snprintf(s->why, sizeof s->why, "%s", why);
    return HTTP_REFUSED;
}

http_fate http_get(http_session *s, const char *url, uint64_t first, const char *if_range, const http_sink *sink,
                   http_answer *answer) {
    char here[URL_CAP];
    if (strlen(url) >= sizeof here) return refuse(s, "the URL is too long");
    snprintf(here, sizeof here, "%s", url);
    for (int i = 0; i < HOPS_MAX; i++) {
        char *next = NULL;
        const http_fate fate = get_once(s, here, first, if_range, sink, answer);
        if (fate != HTTP_STATUS || !is_redirect(answer->status)) return fate;
        curl_easy_getinfo(s->curl, CURLINFO_REDIRECT_URL, &next);
        if (!next || strlen(next) >= sizeof here) return refuse(s, "the server redirects to nowhere");
        if (is_https(here) && !is_https(next)) return refuse(s, "the server redirects from https to what is not");
        snprintf(here, sizeof here, "%s", next);
    }
    return refuse(s, "the server redirects without end");
}

/* ---- the rest ---------------------------------------------------------------------------------- */

http_session *http_open(const char *origin, const char *token, uint32_t stall_s) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return NULL;
    http_session *s = cli_alloc(1, sizeof *s);
    *s = (http_session){.curl = curl_easy_init(), .origin = origin, .token = token, .stall_s = stall_s};
    if (s->curl) return s;
    http_close(s);
    return NULL;
}

void http_close(http_session *s) {
    if (!s) return;
    curl_easy_cleanup(s->curl);
    free(s);
    curl_global_cleanup();
}

int http_may_pass(http_fate fate, const http_answer *answer) {
    return fate == HTTP_BROKEN ||
           (fate == HTTP_STATUS && (answer->status == 408 || answer->status == 429 || answer->status >= 500));
}

int http_wait(uint32_t tries, const http_answer *answer) {
    double left_s = 0.25 * (double)(1u << (tries < 8 ? tries - 1 : 7));
    if (answer->retry_after_s != UINT32_MAX) left_s = answer->retry_after_s < 60 ? (double)answer->retry_after_s : 60;
    for (; left_s > 0 && !interrupt_came(); left_s -= 0.05) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return interrupt_code();
}

const char *http_why(const http_session *s) { return s->why; }

char *http_escape(http_session *s, const char *text) {
    char *all = cli_alloc(3 * strlen(text) + 1, 1), *end = all;
    while (*text) {
        const size_t n = strcspn(text, "/");
        char *part = n ? curl_easy_escape(s->curl, text, (int)n) : NULL;
        const size_t n_part = part ? strlen(part) : 0; /* at most 3 * n */
        if (n_part) memcpy(end, part, n_part);
        end += n_part;
        text += n;
        if (*text == '/') *end++ = *text++;
        curl_free(part);
    }
    return all;
}

const char *http_describe(void) {
    static char text[64];
    snprintf(text, sizeof text, "libcurl %s", curl_version_info(CURLVERSION_NOW)->version);
    return text;
}
