/* SPDX-License-Identifier: MIT
 *
 * test_device_images.c: a sequence's image on a GPU is, byte for byte, what the CPU's cache writes of it, and each goes
 * on from the other's.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/cuda/image_hash.h"
#include "cache/image_form.h"
#include "quant/layout.h"
#include "serving_ways.h"

enum { N_UNIFORM = 8 }; /* of them, which come first: their pages have no positions */
static const char *const formats[] = {"f16",
                                      "k8v8",
                                      "k8v4",
                                      "k4v2",
                                      "h4v4",
                                      "h3v2",
                                      "h2v3",
                                      "h3v3",
                                      "leankv:ah=1,al=0.02,window=32,low=h2v2",
                                      "leankv:ah=1,al=0.02,window=32",
                                      "leankv:ah=1,al=0.02,window=32,every=8",
                                      "leankv:ah=3,al=0,window=32"};

/* With CHECK_LEAST one of each kind. */
static size_t first_format(size_t i) { return i + check_cases(0, i ? 1 : 3); }
static size_t next_format(size_t i) { return i + check_cases(1, 6); }

typedef struct image {
    uint8_t *data;
    uint64_t n_bytes;
} image;

/* An engine on the GPU or the CPU.  n_pages 0: as many as are needed. */
static pleat_engine *engine_on(const char *spec, uint32_t devices, uint64_t n_pages) {
    pleat_engine *engine = NULL;
    n_devices = 1;
    pleat_engine_options o = engine_options(spec);
    o.chunk_tokens = MAX_TOKENS;
    o.step_tokens = 2 * MAX_TOKENS;
    o.devices = devices;
    if (n_pages > 0) {
        pleat_engine *large = engine_on(spec, devices, 0);
        pleat_cache_traits t = {.size_bytes = sizeof t};
        CHECK_STATUS(pleat_engine_get_traits(large, &t), PLEAT_OK);
        o.pool_bytes = n_pages * t.page_bytes;
        pleat_engine_destroy(&large);
    }
    CHECK_STATUS(pleat_engine_create(model, &o, &engine, NULL), PLEAT_OK);
    return engine;
}

/* n tokens of the text from `from` on, one by one or as a prompt; the likeliest one afterwards. */
static pleat_token read_text(pleat_engine *e, pleat_seq seq, uint32_t from, uint32_t n, bool at_once) {
    pleat_token token = -1;
    for (uint32_t i = 0; i < n && check_failures() == 0; i += at_once ? n : 1) {
        const pleat_engine_item item = {.seq = seq, .tokens = text + from + i, .n_tokens = at_once ? n : 1};
        CHECK_STATUS(pleat_engine_step_likeliest(e, &item, 1, &token, NULL), PLEAT_OK);
    }
    return token;
}

/* It goes on greedily. */
static void go_on(pleat_engine *e, pleat_seq seq, pleat_token token, uint32_t n, pleat_token *out) {
    for (uint32_t i = 0; i < n && check_failures() == 0; i++) {
        const pleat_engine_item item = {.seq = seq, .tokens = &token, .n_tokens = 1};
        out[i] = token;
        CHECK_STATUS(pleat_engine_step_likeliest(e, &item, 1, &token, NULL), PLEAT_OK);
    }
}

static image save(pleat_engine *e, pleat_seq seq) {
    image m = {.n_bytes = pleat_engine_image_bytes(e, seq, (pleat_seq){0})};
    m.data = pleat_engine_take_image(e, m.n_bytes);
    if (!CHECK(m.data != NULL)) return m;
    memset(m.data, 0xA5, m.n_bytes);
    CHECK_STATUS(pleat_engine_save(e, seq, (pleat_seq){0}, m.data, m.n_bytes), PLEAT_OK);
    return m;
}

static void drop(pleat_engine *e, image *m) { pleat_engine_drop_image(e, m->data, m->n_bytes); }

static pleat_seq restore(pleat_engine *e, const image *m) {
    pleat_seq seq = {0};
    CHECK_STATUS(pleat_engine_restore(e, m->data, m->n_bytes, (pleat_seq){0}, &seq), PLEAT_OK);
    CHECK(pleat_engine_is_valid(e));
    return seq;
}

/* `to` takes the image, and writes the same one. */
static pleat_seq take_over(pleat_engine *to, const image *m) {
    const pleat_seq seq = restore(to, m);
    image again = save(to, seq);
    if (CHECK_EQ_U64(again.n_bytes, m->n_bytes)) CHECK_EQ_MEM(again.data, m->data, m->n_bytes);
    drop(to, &again);
    return seq;
}

/* A prompt of n and n_steps tokens more, from one engine to the other and, where that is `to` itself, back. */
static void hand_over(pleat_engine *from, pleat_engine *to, uint32_t n, uint32_t n_steps) {
    enum { N = 24 };
    const uint32_t n_more = (uint32_t)check_cases(N, 1);
    pleat_seq seq, over;
    pleat_token here[N], there[N];
    CHECK_STATUS(pleat_engine_open(from, MAX_TOKENS, &seq), PLEAT_OK);
    pleat_token token = read_text(from, seq, 0, n, true);
    if (n_steps > 0) token = read_text(from, seq, n, n_steps, false);
    image m = save(from, seq);
    over = take_over(to, &m);
    CHECK_EQ_U64(pleat_engine_length(to, over), n + n_steps);
    drop(from, &m);
    go_on(from, seq, token, n_more, here);
    go_on(to, over, token, n_more, there);
    if (from == to) CHECK_EQ_MEM(there, here, n_more * sizeof *here);
    m = save(to, over); /* after more tokens too */
    pleat_engine_close(from, take_over(from, &m));
    drop(to, &m);
    pleat_engine_close(from, seq);
    pleat_engine_close(to, over);
}

static void images_are_the_cpus(void) {
    CHECK_DEVICE();
    if (!load_once()) return;
    for (size_t i = first_format(0); i < CHECK_COUNT(formats) && check_failures() == 0; i = next_format(i)) {
        check_context("%s", formats[i]);
        pleat_engine *gpu = engine_on(formats[i], 1, 0), *cpu = engine_on(formats[i], 0, 0);
        const uint32_t lengths[] = {33, 1, 15, 16, 200, 401};
        for (size_t k = 0; k < check_cases(CHECK_COUNT(lengths), 1) && check_failures() == 0; k++) {
            hand_over(gpu, cpu, lengths[k], k % 3 * 7);
            hand_over(cpu, gpu, lengths[k], k % 3 * 7);
            hand_over(gpu, gpu, lengths[k], k % 2 * 40);
        }
        CHECK_EQ_U64(pleat_engine_pages_held(gpu, (pleat_seq){0}), 0);
        pleat_engine_destroy(&gpu);
        pleat_engine_destroy(&cpu);
    }
}

/* n tokens of the text from `from` on as a prompt, the last one by itself; the likeliest one afterwards. */
static pleat_token read_in_parts(pleat_engine *e, pleat_seq seq, uint32_t from, uint32_t n) {
    pleat_token token = -1;
    const pleat_engine_item parts[] = {{.seq = seq, .tokens = text + from, .n_tokens = n - 1, .flags = PLEAT_ITEM_MORE},
                                       {.seq = seq, .tokens = text + from + n - 1, .n_tokens = 1}};
    for (int i = 0; i < 2; i++) CHECK_STATUS(pleat_engine_step_likeliest(e, &parts[i], 1, &token, NULL), PLEAT_OK);
    return token;
}

/* The other engine takes the sequence as it is now, and goes on from there. */
static void is_taken(pleat_engine *from, pleat_engine *to, pleat_seq seq, pleat_token token) {
    pleat_token out[2];
    image m = save(from, seq);
    const pleat_seq over = restore(to, &m);
    go_on(to, over, token, 2, out);
    CHECK(pleat_engine_is_valid(to));
    drop(from, &m);
    pleat_engine_close(to, over);
}

/* However few tokens have left the window then, and behind a later prompt too: in each of the steps that follow. */
static void prompts_may_end_with_one_token(void) {
    enum { N = 10, WINDOW = 32 };
    CHECK_DEVICE();
    if (!load_once()) return;
    for (size_t i = N_UNIFORM; i < CHECK_COUNT(formats) && check_failures() == 0; i += check_cases(1, 2)) {
        check_context("%s", formats[i]);
        pleat_engine *gpu = engine_on(formats[i], 1, 0), *cpu = engine_on(formats[i], 0, 0);
        for (uint32_t n = WINDOW + 1; n < WINDOW + 9 && check_failures() == 0; n += (uint32_t)check_cases(1, 5)) {
            pleat_seq seq;
            CHECK_STATUS(pleat_engine_open(cpu, MAX_TOKENS, &seq), PLEAT_OK);
            (void)read_in_parts(cpu, seq, 0, n);
            image m = save(cpu, seq);
            pleat_engine_close(gpu, take_over(gpu, &m));
            drop(cpu, &m);
            pleat_token token = read_in_parts(cpu, seq, n, 5);
            for (uint32_t k = 0; k < (uint32_t)check_cases(N, 2) && check_failures() == 0; k++) {
                is_taken(cpu, gpu, seq, token);
                token = read_text(cpu, seq, n + 5 + k, 1, false);
            }
            pleat_engine_close(cpu, seq);
        }
        pleat_engine_destroy(&gpu);
        pleat_engine_destroy(&cpu);
    }
}

/* Who leaves is closed while its bytes are on their way, beside steps of another; or its image is not wanted any more. */
static void images_leave_beside_steps(void) {
    enum { N = 24 };
    CHECK_DEVICE();
    if (!load_once()) return;
    for (size_t i = first_format(0); i < CHECK_COUNT(formats) && check_failures() == 0; i = next_format(i)) {
        check_context("%s", formats[i]);
        pleat_engine *gpu = engine_on(formats[i], 1, 0);
        pleat_seq leaves, stays;
        pleat_token out[N];
        CHECK_STATUS(pleat_engine_open(gpu, MAX_TOKENS, &leaves), PLEAT_OK);
        CHECK_STATUS(pleat_engine_open(gpu, MAX_TOKENS, &stays), PLEAT_OK);
        (void)read_text(gpu, leaves, 0, 401, true);
        const pleat_token token = read_text(gpu, stays, 7, 100, true);
        image whole = save(gpu, leaves), soon = {pleat_engine_take_image(gpu, whole.n_bytes), whole.n_bytes};
        CHECK_STATUS(pleat_engine_save_soon(gpu, leaves, (pleat_seq){0}, soon.data, soon.n_bytes), PLEAT_OK);
        CHECK(pleat_engine_image_pages(gpu, soon.data, soon.n_bytes) > 0);
        CHECK_STATUS(pleat_engine_close(gpu, leaves), PLEAT_OK);
        go_on(gpu, stays, token, (uint32_t)check_cases(N, 2), out);
        const pleat_seq back = take_over(gpu, &soon);
        CHECK_EQ_MEM(soon.data, whole.data, whole.n_bytes);
        CHECK_STATUS(pleat_engine_save_soon(gpu, back, (pleat_seq){0}, soon.data, soon.n_bytes), PLEAT_OK);
        drop(gpu, &soon);
        drop(gpu, &whole);
        CHECK_STATUS(pleat_engine_close(gpu, back), PLEAT_OK);
        CHECK_STATUS(pleat_engine_close(gpu, stays), PLEAT_OK);
        CHECK_EQ_U64(pleat_engine_pages_held(gpu, (pleat_seq){0}), 0);
        pleat_engine_destroy(&gpu);
    }
}

/* Rings, whose lanes are of two lengths. */
static void windows_have_images(void) {
    CHECK_DEVICE();
    if (!load_once()) return;
    pleat_model *plain = model;
    if ((model = windowed_model(48)) != NULL) {
        pleat_engine *gpu = engine_on("k8v4", 1, 0), *cpu = engine_on("k8v4", 0, 0);
        const uint32_t lengths[] = {49, 20, 48, 200};
        for (size_t k = 0; k < check_cases(CHECK_COUNT(lengths), 1) && check_failures() == 0; k++) {
            hand_over(gpu, cpu, lengths[k], 3);
            hand_over(cpu, gpu, lengths[k], 3);
            hand_over(gpu, gpu, lengths[k], 0);
        }
        /* A fork takes what it says, no more. */
        pleat_seq seq, fork;
        CHECK_STATUS(pleat_engine_open(gpu, MAX_TOKENS, &seq), PLEAT_OK);
        read_text(gpu, seq, 0, 200, true);
        const uint64_t n = pleat_engine_fork_pages(gpu, seq), held = pleat_engine_pages_held(gpu, (pleat_seq){0});
        CHECK_EQ_U64(n, held);
        CHECK_STATUS(pleat_engine_fork(gpu, seq, MAX_TOKENS, &fork), PLEAT_OK);
        CHECK_EQ_U64(pleat_engine_pages_held(gpu, (pleat_seq){0}), held + n);
        pleat_engine_destroy(&gpu);
        pleat_engine_destroy(&cpu);
        pleat_model_destroy(&model);
    }
    model = plain;
}

/* What is shared is whole in an image; damage is found; where pages are short all is as it was. */
static void what_cannot_be_restored_changes_nothing(void) {
    CHECK_DEVICE();
    if (!load_once()) return;
    for (size_t i = first_format(0); i < CHECK_COUNT(formats) && check_failures() == 0; i = next_format(i)) {
        check_context("%s", formats[i]);
        pleat_engine *gpu = engine_on(formats[i], 1, a_page_each() * check_cases(40, 30));
        pleat_seq seq, fork, other;
        CHECK_STATUS(pleat_engine_open(gpu, MAX_TOKENS, &seq), PLEAT_OK);
        read_text(gpu, seq, 0, 200, true);
        CHECK_STATUS(pleat_engine_fork(gpu, seq, MAX_TOKENS, &fork), PLEAT_OK);
        image m = save(gpu, seq), same = save(gpu, fork);
        CHECK_EQ_U64(m.n_bytes, same.n_bytes);
        CHECK_EQ_MEM(m.data, same.data, m.n_bytes);
        drop(gpu, &same);
        pleat_engine_close(gpu, fork);
        const uint64_t held = pleat_engine_pages_held(gpu, (pleat_seq){0});
        for (uint32_t at = 0; at < m.n_bytes; at += 1 + (uint32_t)(m.n_bytes / check_cases(61, 3))) {
            m.data[at] ^= 0x40;
            CHECK_STATUS(pleat_engine_restore(gpu, m.data, m.n_bytes, (pleat_seq){0}, &other), PLEAT_E_FORMAT);
            m.data[at] ^= 0x40;
        }
        CHECK_STATUS(pleat_engine_restore(gpu, m.data, m.n_bytes - 1, (pleat_seq){0}, &other), PLEAT_E_FORMAT);
        CHECK_EQ_U64(pleat_engine_pages_held(gpu, (pleat_seq){0}), held);
        uint32_t n = 0;
        pleat_status status;
        while ((status = pleat_engine_restore(gpu, m.data, m.n_bytes, (pleat_seq){0}, &other)) == PLEAT_OK) n++;
        CHECK_STATUS(status, PLEAT_AGAIN);
        CHECK(n >= 1 && pleat_engine_is_valid(gpu));
        drop(gpu, &m);
        pleat_engine_destroy(&gpu);
    }
}

/* With its hash made right, the image is taken, or refused. */
static void check_forged(pleat_engine *e, image *m, bool is_sound) {
    pleat_seq seq;
    const uint64_t hash = XXH3_64bits(m->data + sizeof hash, m->n_bytes - sizeof hash);
    memcpy(m->data, &hash, sizeof hash);
    const pleat_status status = pleat_engine_restore(e, m->data, m->n_bytes, (pleat_seq){0}, &seq);
    CHECK_STATUS(status, is_sound ? PLEAT_OK : PLEAT_E_FORMAT);
    if (status == PLEAT_OK) pleat_engine_close(e, seq);
}

/* Slots of levels say whose they are: each token once, the window's all, none in the hole.  Seals have to be of pages. */
static void forged_slots_are_refused(void) {
    CHECK_DEVICE();
    if (!load_once()) return;
    for (size_t i = first_format(N_UNIFORM); i < CHECK_COUNT(formats) && check_failures() == 0; i = next_format(i)) {
        enum { N = 207, STEPS = 6 };
        pleat_engine *gpu = engine_on(formats[i], 1, 0), *cpu = engine_on(formats[i], 0, 0);
        pleat_seq seq;
        CHECK_STATUS(pleat_engine_open(gpu, MAX_TOKENS, &seq), PLEAT_OK);
        read_text(gpu, seq, 0, N - STEPS, true);
        read_text(gpu, seq, N - STEPS, STEPS, false);
        image m = save(gpu, seq);
        pleat__image_header head;
        memcpy(&head, m.data, sizeof head);
        const uint64_t pages_at = m.n_bytes - head.n_stored * head.page_bytes;
        pleat__lane lane;
        memcpy(&lane, m.data + sizeof head, sizeof lane);
        pleat__page_layout layout;
        pleat_model_info info;
        pleat_model_get_info(model, &info);
        const pleat_engine_options o = engine_options(formats[i]);
        CHECK_STATUS(pleat__page_layout_init_scored(&layout, o.spec.high, info.head_dim, o.page_tokens, 1), PLEAT_OK);
        uint8_t *last = m.data + pages_at + (lane.n_pages[0] - 1) * head.page_bytes + layout.pos_off +
                        (lane.n_slots[0] - 1) % layout.tokens * sizeof(int32_t);
        int32_t own;
        memcpy(&own, last, sizeof own);
        CHECK(own >= 0 && lane.hole != lane.n_slots[0]);
        const int32_t positions[] = {own, N, -1, -2, INT32_MIN, own == N - 1 ? N - 2 : N - 1};
        for (size_t k = 0; k < check_cases(CHECK_COUNT(positions), 2); k++) {
            check_context("%s, position %d", formats[i], positions[k]);
            memcpy(last, &positions[k], sizeof own);
            check_forged(gpu, &m, k == 0);
            check_forged(cpu, &m, k == 0);
        }
        memcpy(last, &own, sizeof own);
        lane.n_sealed[0] = lane.n_slots[0] / layout.tokens + 1;
        memcpy(m.data + sizeof head, &lane, sizeof lane);
        check_forged(gpu, &m, false);
        drop(gpu, &m);
        pleat_engine_destroy(&gpu);
        pleat_engine_destroy(&cpu);
    }
}

/* A share of another prompt's length than the lanes were filled by: a fork has room for what they hold. */
static void forged_budgets_are_forked_whole(void) {
    CHECK_DEVICE();
    if (!load_once()) return;
    enum { N = 200 };
    pleat_engine *gpu = engine_on("streaming:budget=75%", 1, 0);
    pleat_seq seq, fork;
    CHECK_STATUS(pleat_engine_open(gpu, MAX_TOKENS, &seq), PLEAT_OK);
    read_text(gpu, seq, 0, N, true);
    image m = save(gpu, seq);
    pleat__image_header head;
    memcpy(&head, m.data, sizeof head);
    head.n_prompt = 1;
    memcpy(m.data, &head, sizeof head);
    check_forged(gpu, &m, true);
    CHECK_STATUS(pleat_engine_restore(gpu, m.data, m.n_bytes, (pleat_seq){0}, &seq), PLEAT_OK);
    CHECK_STATUS(pleat_engine_fork(gpu, seq, MAX_TOKENS, &fork), PLEAT_OK);
    CHECK(pleat_engine_is_valid(gpu));
    image again = save(gpu, fork);
    CHECK(again.n_bytes == m.n_bytes && memcmp(again.data, m.data, m.n_bytes) == 0);
    drop(gpu, &again);
    drop(gpu, &m);
    pleat_engine_destroy(&gpu);
}

/* What a block gives, as image_hash.h says it. */
static void sum_block(const uint8_t *block, uint64_t *sums) {
    uint64_t key[PLEAT__HASH_WORDS];
    pleat__image_hash_key(key);
    memset(sums, 0, PLEAT__HASH_SUMS * sizeof *sums);
    for (uint32_t i = 0; i < PLEAT__HASH_BLOCK / 64; i++)
        for (uint32_t l = 0; l < 8; l++) {
            uint64_t word;
            memcpy(&word, block + 64 * i + 8 * l, sizeof word);
            const uint64_t w = word ^ key[i + l];
            sums[l] += (w & 0xFFFFFFFF) * (w >> 32);
            sums[l ^ 1] += word;
        }
}

/* What comes next, as image_hash.h says it. */
static void stir_block(pleat__image_hasher *h, const uint64_t *sums) {
    uint64_t key[PLEAT__HASH_SUMS];
    pleat__image_hash_stir_key(key);
    for (uint32_t l = 0; l < PLEAT__HASH_SUMS; l++) {
        const uint64_t x = h->sums[l] + sums[l];
        h->sums[l] = (x ^ x >> 47 ^ key[l]) * PLEAT__HASH_PRIME;
    }
    h->next++;
}

/* Some blocks by their bytes, some by their sums: the hash is XXH3's. */
static void hashes_are_xxh3(void) {
    enum { MOST = 9000 };
    uint8_t bytes[MOST];
    for (size_t i = 0; i < MOST; i++) bytes[i] = (uint8_t)check_u64();
    for (uint32_t round = 0; round < 400; round++) {
        const uint64_t n = round < 130 ? 4 * PLEAT__HASH_BLOCK - 64 + round : check_between(1025, MOST);
        pleat__image_hasher h;
        pleat__image_hash_begin(&h, bytes, n);
        while (h.next < h.n_blocks) {
            uint64_t sums[PLEAT__HASH_SUMS];
            sum_block(bytes + h.next * PLEAT__HASH_BLOCK, sums);
            if (check_below(2))
                stir_block(&h, sums);
            else
                pleat__image_hash_bytes(&h, h.next + 1);
        }
        check_context("%llu bytes", (unsigned long long)n);
        CHECK_EQ_U64(pleat__image_hash_end(&h), XXH3_64bits(bytes, n));
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        {"hashes are xxh3", hashes_are_xxh3},
        {"images are the cpu's", images_are_the_cpus},
        {"prompts may end with one token", prompts_may_end_with_one_token},
        {"images leave beside steps", images_leave_beside_steps},
        {"windows have images", windows_have_images},
        {"what cannot be restored changes nothing", what_cannot_be_restored_changes_nothing},
        {"forged slots are refused", forged_slots_are_refused},
        {"forged budgets are forked whole", forged_budgets_are_forked_whole},
    };
    const int rc = check_main(tests, CHECK_COUNT(tests), argc, argv);
    pleat_model_destroy(&model);
    return rc;
}
