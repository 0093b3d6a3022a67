/* SPDX-License-Identifier: MIT
 *
 * tenant.c: what tenants hold, borrow and have been served; splitting a pool among them.
 *
 * A tenant's counter is the tokens computed for it; counter / weight is compared as a whole number and a fraction, so
 * exactly.  A tenant that was idle starts from the least of those who were not, or, when everybody was, from the one
 * who was busy last.  Else its idleness would be a credit against whoever comes back at the same time.
 */
#include <assert.h>
#include <math.h>

#include "core/checked.h"
#include "sched/internal.h"

/* ---- service ------------------------------------------------------------------------------------- */

static uint64_t add_saturated(uint64_t a, uint64_t b) {
    uint64_t sum = UINT64_MAX;
    pleat__add_u64(a, b, &sum);
    return sum;
}

/* a / aw against b / bw. */
static int compare_ratios(uint64_t a, uint32_t aw, uint64_t b, uint32_t bw) {
    const uint64_t whole_a = a / aw, whole_b = b / bw;
    if (whole_a != whole_b) return whole_a < whole_b ? -1 : 1;
    const uint64_t part_a = a % aw * bw, part_b = b % bw * aw; /* both below aw * bw */
    return (part_a > part_b) - (part_a < part_b);
}

int pleat__tenant_compare(const pleat__tenant *a, const pleat__tenant *b) {
    return compare_ratios(add_saturated(a->counter, a->step_tokens), a->weight,
                          add_saturated(b->counter, b->step_tokens), b->weight);
}

/* counter / weight, times another weight, rounded down. */
static uint64_t at_weight(const pleat__tenant *t, uint32_t weight) {
    uint64_t whole = UINT64_MAX;
    pleat__mul_u64(t->counter / t->weight, weight, &whole);
    return add_saturated(whole, t->counter % t->weight * weight / t->weight);
}

void pleat__tenant_wakes(pleat__sched *s, uint32_t tenant) {
    const pleat__tenant *least = NULL;
    for (uint32_t i = 0; i < s->opt.n_tenants; i++) {
        const pleat__tenant *t = &s->tenants[i];
        if (t->n_requests == 0 || i == tenant) continue;
        if (!least || compare_ratios(t->counter, t->weight, least->counter, least->weight) < 0) least = t;
    }
    if (!least && s->last_tenant != PLEAT__NO_TENANT) least = &s->tenants[s->last_tenant];
    if (!least) return;
    pleat__tenant *t = &s->tenants[tenant];
    const uint64_t start = at_weight(least, t->weight);
    if (t->counter < start) t->counter = start;
}

void pleat__tenant_sleeps(pleat__sched *s, uint32_t tenant) { s->last_tenant = tenant; }

void pleat__tenant_served(pleat__tenant *t, uint32_t n_tokens) {
    t->service = add_saturated(t->service, n_tokens);
    t->counter = add_saturated(t->counter, n_tokens);
}

/* ---- pages --------------------------------------------------------------------------------------- */

static uint64_t beyond(uint64_t pages, uint64_t quota) { return pages > quota ? pages - quota : 0; }

bool pleat__tenant_borrows(const pleat__tenant *t) { return t->held_pages + t->step_pages > t->quota_pages; }

uint64_t pleat__tenants_borrow_step(const pleat__sched *s) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->opt.n_tenants; i++) {
        const pleat__tenant *t = &s->tenants[i];
        sum += beyond(t->held_pages + t->step_pages, t->quota_pages);
    }
    return sum;
}

bool pleat__tenant_has_room(const pleat__sched *s, uint32_t tenant, uint64_t n_pages) {
    const pleat__tenant *own = &s->tenants[tenant];
    if (own->held_pages + own->coming_pages + n_pages <= own->quota_pages) return true;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->opt.n_tenants; i++) {
        const pleat__tenant *t = &s->tenants[i];
        const uint64_t pages = t->held_pages + t->coming_pages + (i == tenant ? n_pages : 0);
        sum += beyond(pages, t->quota_pages);
    }
    return s->lends && sum <= s->shared_pages;
}

uint64_t pleat__sched_held(const pleat__sched *sched, uint32_t tenant) {
    assert(tenant < sched->opt.n_tenants);
    return sched->tenants[tenant].held_pages;
}

uint64_t pleat__sched_borrowed(const pleat__sched *sched, uint32_t tenant) {
    assert(tenant < sched->opt.n_tenants);
    return beyond(sched->tenants[tenant].held_pages, sched->tenants[tenant].quota_pages);
}

uint64_t pleat__sched_service(const pleat__sched *sched, uint32_t tenant) {
    assert(tenant < sched->opt.n_tenants);
    return sched->tenants[tenant].service;
}

uint64_t pleat__sched_max_pages(const pleat__sched *sched, uint32_t tenant) {
    assert(tenant < sched->opt.n_tenants);
    return sched->tenants[tenant].quota_pages + sched->shared_pages;
}

/* ---- splitting a pool ---------------------------------------------------------------------------- */

/* What a share would get if pages could be split; scaled by a power of two, so that no product overflows. */
static double exact_part(uint64_t n_pages, double share, double sum, int exponent) {
    return ldexp(share, -exponent) * (double)n_pages / sum;
}

/* Sum of the shares, divided by 2^exponent, which brings the largest to 1/2..1; 0 if they are no shares. */
static double sum_shares(const double *shares, uint32_t n, int *exponent) {
    double largest = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(shares[i] >= 0) || isinf(shares[i])) return 0;
        largest = fmax(largest, shares[i]);
    }
    frexp(largest, exponent);
    for (uint32_t i = 0; i < n; i++) sum += ldexp(shares[i], -*exponent);
    return sum;
}

pleat_status pleat__sched_split(uint64_t n_pages, const double *shares, uint32_t n, uint64_t *pages) {
    int exponent;
    const double sum = sum_shares(shares, n, &exponent);
    if (!(sum > 0)) return PLEAT_E_ARG;
    uint64_t left = n_pages;
    for (uint32_t i = 0; i < n; i++) {
        const double part = exact_part(n_pages, shares[i], sum, exponent);
        pages[i] = part < (double)left ? (uint64_t)part : left; /* beyond 2^53 parts may round up */
        left -= pages[i];
    }
    for (; left > 0; left--) { /* to the largest shortfall; fewer than n times, rounding apart */
        uint32_t first = 0;
        double largest = -INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            const double shortfall = exact_part(n_pages, shares[i], sum, exponent) - (double)pages[i];
            if (shortfall <= largest || shares[i] == 0) continue;
            largest = shortfall;
            first = i;
        }
        pages[first]++;
    }
    return PLEAT_OK;
}
