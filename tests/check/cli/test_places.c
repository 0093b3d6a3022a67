/* SPDX-License-Identifier: MIT
 *
 * test_places.c: the places for texts: how many a client may have, against the rule written out for one place at a time.
 */
#include "check.h"
#include "cli/serve/places.h"

enum { N_CLIENTS = 9, N_ROUNDS = 5000 };

/* Who has how many, by the rule itself. */
typedef struct oracle {
    uint32_t held[N_CLIENTS], n_free;
} oracle;

static int take(oracle *o, uint32_t who, uint32_t n) {
    oracle next = *o;
    for (uint32_t i = 0; i < n; i++) {
        if (next.n_free == 0 || next.held[who] > PLACES_SHARE * next.n_free) return 0;
        next.held[who]++;
        next.n_free--;
    }
    *o = next;
    return n > 0;
}

static void test_random(void) {
    for (uint32_t n_max = 1; n_max <= 300; n_max = n_max * 5 / 3 + 1) {
        places p;
        oracle o = {.n_free = n_max};
        places_init(&p, n_max);
        for (uint32_t i = 0; i < N_ROUNDS; i++) {
            const uint32_t who = (uint32_t)check_below(N_CLIENTS), n = (uint32_t)check_below(4);
            if (check_below(2)) {
                CHECK(places_take(&p, who, n) == take(&o, who, n));
            } else if (o.held[who] >= n) {
                places_return(&p, who, n);
                o.held[who] -= n;
                o.n_free += n;
            }
            CHECK_EQ_U64(p.n_held, n_max - o.n_free);
            if (check_failures() > 0) break;
        }
        places_release(&p);
    }
}

/* Who asks without end and who asks now and then: the one alone has nearly all, and then both come to have as many. */
static void test_greedy(void) {
    places p;
    places_init(&p, 100);
    uint32_t n_greedy = 0, n_other = 0;
    while (places_take(&p, 1, 1)) n_greedy++;
    CHECK_EQ_U64(n_greedy, places_most(&p));
    CHECK_EQ_U64(n_greedy, 94);
    for (uint32_t i = 0; i < 1000; i++) {
        n_other += (uint32_t)places_take(&p, 2, 1);
        places_return(&p, 1, 1);
        n_greedy--;
        for (uint32_t k = 0; k < 10; k++) n_greedy += (uint32_t)places_take(&p, 1, 1);
    }
    CHECK(n_other >= 45 && n_greedy >= 45);
    CHECK(places_take(&p, 3, 1));
    places_release(&p);
}

static void test_most(void) {
    for (uint32_t n_max = 1; n_max < 600; n_max++) {
        places p;
        places_init(&p, n_max);
        CHECK(!places_take(&p, 7, places_most(&p) + 1));
        CHECK(places_take(&p, 7, places_most(&p)));
        CHECK(n_max > 16 || p.n_held == n_max);
        places_release(&p);
    }
}

static const check_test tests[] = {
    {"random", test_random},
    {"greedy", test_greedy},
    {"most", test_most},
};

int main(int argc, char **argv) { return check_main(tests, CHECK_COUNT(tests), argc, argv); }
