/* SPDX-License-Identifier: MIT
 *
 * slabs.c: see slabs.h.
 */
#include "engine/slabs.h"

#include <pthread.h>
#include <string.h>

#define MAX_SLABS 4096u

typedef struct slab {
    uint8_t *p;
    bool *is_taken; /* [n_units] behind them, in memory of the source: the caller's allocator is not the thread's */
    uint32_t n_units, n_free;
} slab;

struct pleat__slabs {
    pleat_allocator al;
    pleat__slab_source source;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, ends;
    bool is_getting;      /* (3) */
    bool has_failed;      /* the source had no more: the thread asks no more */
    uint32_t slab_units;  /* of the next slab: as large as the largest piece */
    uint64_t ready, most; /* units that are kept free; units of all slabs that are got ahead */
    uint64_t n_units, n_free;
    uint32_t n_slabs;
    slab slabs[MAX_SLABS]; /* [n_slabs] */
};

static uint64_t units_of(uint64_t n_bytes) { return (n_bytes + PLEAT__SLAB_UNIT - 1) / PLEAT__SLAB_UNIT; }

static uint64_t slab_bytes_of(uint32_t n_units) { return n_units * (PLEAT__SLAB_UNIT + sizeof(bool)); }

/* ---- slabs -------------------------------------------------------------------------------------------- */

/* The lock is let go of meanwhile.  False: there is no more. */
static bool add_slab(pleat__slabs *s, uint32_t n_units) {
    s->is_getting = true;
    (void)pthread_mutex_unlock(&s->lock);
    uint8_t *p = s->source.get(s->source.ctx, slab_bytes_of(n_units));
    bool *is_taken = p ? (bool *)(void *)(p + n_units * PLEAT__SLAB_UNIT) : NULL;
    if (p) memset(is_taken, false, n_units * sizeof *is_taken);
    (void)pthread_mutex_lock(&s->lock);
    s->is_getting = false;
    if (p) {
        s->slabs[s->n_slabs++] = (slab){p, is_taken, n_units, n_units};
        s->n_units += n_units;
        s->n_free += n_units;
    }
    (void)pthread_cond_broadcast(&s->changed);
    return p != NULL;
}

static void remove_slab(pleat__slabs *s, uint32_t i) {
    const slab gone = s->slabs[i];
    s->slabs[i] = s->slabs[--s->n_slabs];
    s->n_units -= gone.n_units;
    s->n_free -= gone.n_free;
    s->source.put(s->source.ctx, gone.p, slab_bytes_of(gone.n_units));
}

static void remove_free_slabs(pleat__slabs *s) {
    for (uint32_t i = s->n_slabs; i-- > 0;)
        if (s->slabs[i].n_free == s->slabs[i].n_units) remove_slab(s, i);
}

/* ---- the thread --------------------------------------------------------------------------------------- */

/* Units of the slab to be got ahead; 0: none is. */
static uint32_t units_ahead(const pleat__slabs *s) {
    if (s->is_getting || s->has_failed || s->n_slabs == MAX_SLABS || s->n_free >= s->ready || s->n_units >= s->most)
        return 0;
    const uint64_t n_more = s->most - s->n_units;
    return n_more < s->slab_units ? (uint32_t)n_more : s->slab_units;
}

static void *get_ahead(void *ctx) {
    pleat__slabs *s = ctx;
    (void)pthread_mutex_lock(&s->lock);
    while (!s->ends) {
        const uint32_t n = units_ahead(s);
        if (n == 0)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        else if (!add_slab(s, n))
            s->has_failed = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

void pleat__slabs_expect(pleat__slabs *s, uint64_t ready_bytes, uint64_t most_bytes) {
    (void)pthread_mutex_lock(&s->lock);
    s->ready = units_of(ready_bytes);
    s->most = units_of(most_bytes);
    s->has_failed = false;
    if (!s->has_thread) s->has_thread = pthread_create(&s->thread, NULL, get_ahead, s) == 0;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

/* ---- create, destroy ---------------------------------------------------------------------------------- */

pleat__slabs *pleat__slabs_create(const pleat__slab_source *source, uint64_t slab_bytes, const pleat_allocator *al) {
    pleat__slabs *s = pleat__alloc_zero(al, 1, sizeof *s);
    if (!s) return NULL;
    s->al = *al;
    s->source = *source;
    s->slab_units = (uint32_t)units_of(slab_bytes);
    if (pthread_mutex_init(&s->lock, NULL) == 0) {
        if (pthread_cond_init(&s->changed, NULL) == 0) return s;
        (void)pthread_mutex_destroy(&s->lock);
    }
    pleat__free(al, s, 1, sizeof *s);
    return NULL;
}

void pleat__slabs_destroy(pleat__slabs **slabs) {
    pleat__slabs *s = *slabs;
    if (!s) return;
    (void)pthread_mutex_lock(&s->lock);
    s->ends = true;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    if (s->has_thread) (void)pthread_join(s->thread, NULL);
    while (s->n_slabs > 0) remove_slab(s, s->n_slabs - 1);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    const pleat_allocator al = s->al;
    pleat__free(&al, s, 1, sizeof *s);
    *slabs = NULL;
}

/* ---- pieces ------------------------------------------------------------------------------------------- */

/* NULL: the slab has not so many in a row. */
static void *take_of(slab *of, uint32_t n) {
    uint32_t n_row = 0;
    for (uint32_t i = 0; i < of->n_units && n <= of->n_free; i++) {
        n_row = of->is_taken[i] ? 0 : n_row + 1;
        if (n_row < n) continue;
        memset(of->is_taken + i + 1 - n, true, n * sizeof *of->is_taken);
        of->n_free -= n;
        return of->p + (i + 1 - n) * PLEAT__SLAB_UNIT;
    }
    return NULL;
}

static void *take_units(pleat__slabs *s, uint32_t n) {
    for (uint32_t i = 0; i < s->n_slabs; i++) {
        void *p = take_of(&s->slabs[i], n);
        if (!p) continue;
        s->n_free -= n;
        if (units_ahead(s) > 0) (void)pthread_cond_broadcast(&s->changed);
        return p;
    }
    return NULL;
}

/* A slab that can hold them, now; if there is room for it. */
static bool get_now(pleat__slabs *s, uint32_t n) {
    if (s->n_slabs < MAX_SLABS && add_slab(s, s->slab_units)) return true;
    remove_free_slabs(s);
    return s->n_slabs < MAX_SLABS && add_slab(s, n);
}

void *pleat__slabs_take(pleat__slabs *s, uint64_t n_bytes) {
    const uint64_t wanted = units_of(n_bytes);
    if (wanted == 0 || wanted > UINT32_MAX) return NULL;
    const uint32_t n = (uint32_t)wanted;
    (void)pthread_mutex_lock(&s->lock);
    if (s->slab_units < n) s->slab_units = n;
    void *p = take_units(s, n);
    while (!p && (s->is_getting || get_now(s, n))) {
        if (s->is_getting) (void)pthread_cond_wait(&s->changed, &s->lock);
        p = take_units(s, n);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return p;
}

void pleat__slabs_drop(pleat__slabs *s, const void *p, uint64_t n_bytes) {
    (void)pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_slabs; i++) {
        slab *of = &s->slabs[i];
        const uint64_t from = (uint64_t)((uintptr_t)p - (uintptr_t)of->p), at = from / PLEAT__SLAB_UNIT;
        if ((uintptr_t)p < (uintptr_t)of->p || at >= of->n_units) continue;
        const uint32_t n = (uint32_t)units_of(n_bytes + from % PLEAT__SLAB_UNIT);
        memset(of->is_taken + at, false, n * sizeof *of->is_taken);
        of->n_free += n;
        s->n_free += n;
    }
    (void)pthread_mutex_unlock(&s->lock);
}

bool pleat__slabs_are_valid(pleat__slabs *s, uint64_t *n_units, uint64_t *n_free) {
    bool is_valid = true;
    (void)pthread_mutex_lock(&s->lock);
    *n_units = *n_free = 0;
    for (uint32_t i = 0; i < s->n_slabs; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < s->slabs[i].n_units; k++) n += !s->slabs[i].is_taken[k];
        is_valid &= n == s->slabs[i].n_free;
        *n_units += s->slabs[i].n_units;
        *n_free += n;
    }
    is_valid &= *n_units == s->n_units && *n_free == s->n_free;
    (void)pthread_mutex_unlock(&s->lock);
    return is_valid;
}
